"""A small PPO learns CartPole; beside its own critic, what the frozen transformer says about its policy.

Every 1024 steps the callback lets the policy act for 500 steps in an environment of its own and evaluates it in
context: nothing of the agent is trained. Both estimates are means over the states that were visited.
"""

import gymnasium as gym
from stable_baselines3 import PPO

from icrl_agent import ICRLAgent
from icrl_agent.eval.callback import ICTDValueCallback


def main() -> None:
    """Train, and print both estimates."""
    agent = ICRLAgent.from_theory(feature_dim=128, n_layers=150, sharpness="auto")
    callback = ICTDValueCallback(agent, gym.make("CartPole-v1"), every=1024, n_steps=500)
    model = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=512, gamma=0.95, seed=0, device="cpu")
    model.learn(4096, callback=callback)
    for row in callback.history:
        print(f"{row['num_timesteps']} steps: frozen estimate {row['frozen']:5.2f}, critic {row['critic']:5.2f}")
    print("a pole that never falls is worth 1 / (1 - 0.95) = 20")


if __name__ == "__main__":
    main()
