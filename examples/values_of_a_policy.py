"""How good is this policy? Ask the frozen transformer, and check it against the exact values.

A random decision process with known tables; two policies; 2000 steps of each. No training anywhere.
"""

import gymnasium as gym
import numpy as np

import icrl_agent  # noqa: F401 - registers the environments
from icrl_agent import ICRLAgent
from icrl_agent.envs import state_values

GAMMA = 0.9


def greedy_in_reward(env: gym.Env) -> np.ndarray:
    """Always the action with the larger immediate reward, as a table of probabilities."""
    reward = env.unwrapped.mdp.reward
    return np.eye(reward.shape[1])[reward.argmax(axis=1)]


def main() -> None:
    """Evaluate the uniformly random and a short-sighted policy on the same task."""
    env = gym.make("RandomMDP-v0", n_states=8, n_actions=3, task_seed=11)
    agent = ICRLAgent.from_theory()
    for name, policy in (("random", None), ("short-sighted", greedy_in_reward(env))):
        result = agent.evaluate(env, policy=policy, n_steps=2000, gamma=GAMMA, seed=0)
        exact = state_values(env.unwrapped.mdp.policy_mrp(policy), GAMMA)
        seen = result.visits > 0
        gap = np.abs(result.values - exact)[seen].max()
        print(f"{name:>13}: mean value {result.values[seen].mean():+.3f} over {seen.sum()} visited states,", end=" ")
        print(f"largest error {gap:.3f}, {1000 * result.seconds:.1f} ms")


if __name__ == "__main__":
    main()
