"""Ids from fresh processes, worker processes and specs; and what the environments' pages say."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from icrl_agent.envs import ENVIRONMENT_IDS, register_environments


def run_python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False)


def check_fresh_process(code: str) -> None:
    """The code runs without a warning and prints nothing but ``fine``."""
    result = run_python(code, "-W", "error")
    assert (result.returncode, result.stdout, result.stderr) == (0, "fine\n", "")


MAKE = """
env = gym.make({env_id!r}, **{kwargs!r})
env.reset(seed=0); env.step(0)
envs = gym.make_vec({env_id!r}, num_envs=2, **{kwargs!r})
envs.reset(seed=0); envs.step(envs.action_space.sample())
print("fine")
"""


def test_ids_work_in_a_fresh_process(case: Any) -> None:
    imported = "import gymnasium as gym, icrl_agent" + MAKE.format(env_id=case.id, kwargs=case.kwargs)
    check_fresh_process(imported)
    prefixed = "import gymnasium as gym" + MAKE.format(env_id=f"icrl_agent:{case.id}", kwargs=case.kwargs)
    check_fresh_process(prefixed)


def test_fresh_process_check_catches_an_id_nobody_registered() -> None:
    with pytest.raises(AssertionError):
        check_fresh_process("import gymnasium as gym" + MAKE.format(env_id="BoyanChain-v0", kwargs={}))


def test_registering_twice_is_silent() -> None:
    twice = """
import importlib, gymnasium as gym, icrl_agent
from icrl_agent.envs import register_environments
before = dict(gym.registry)
register_environments(); importlib.reload(icrl_agent)
assert dict(gym.registry) == before
print("fine")
"""
    check_fresh_process(twice)
    overriding = twice.replace(
        "register_environments();", "gym.register('BoyanChain-v0', entry_point='icrl_agent.envs.boyan:BoyanChainEnv');"
    )
    with pytest.raises(AssertionError):
        check_fresh_process(overriding)


def test_importing_registers_exactly_the_documented_ids() -> None:
    register_environments()
    ours = {name for name, spec in gym.registry.items() if "icrl_agent" in str(spec.entry_point)}
    assert ours == set(ENVIRONMENT_IDS)
    assert set(ENVIRONMENT_IDS) == {"BoyanChain-v0", "BoyanChainClassic-v0", "RandomMDP-v0", "TabularMDP-v0"}
    assert all(gym.spec(name).max_episode_steps is None for name in ENVIRONMENT_IDS)


SUBPROC = """
import sys
import gymnasium as gym
from stable_baselines3.common.vec_env import SubprocVecEnv
{setup}
if __name__ == "__main__":
    envs = SubprocVecEnv([lambda: gym.make({env_id!r})] * 2, start_method={start_method!r})
    assert envs.reset().shape == (2,)
    observations, rewards, dones, infos = envs.step([0, 0])
    assert rewards.shape == dones.shape == (2,)
    envs.close()
    print("fine")
"""


def check_subproc(tmp_path: Any, env_id: str, start_method: str | None, setup: str = "") -> None:
    script = tmp_path / "script.py"
    script.write_text(SUBPROC.format(setup=setup, env_id=env_id, start_method=start_method))
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr[-500:]


@pytest.mark.parametrize("start_method", [None, pytest.param("spawn", marks=pytest.mark.slow)])
def test_stable_baselines3_worker_processes(tmp_path: Any, start_method: str | None) -> None:
    check_subproc(tmp_path, "icrl_agent:BoyanChain-v0", start_method)


@pytest.mark.slow
def test_worker_check_catches_an_id_that_only_the_parent_registered(tmp_path: Any) -> None:
    setup = "if __name__ == '__main__':\n    import icrl_agent"
    with pytest.raises(AssertionError, match=r"ConnectionReset|EOFError|BrokenPipe|NameNotFound"):
        check_subproc(tmp_path, "BoyanChain-v0", "spawn", setup)


ASYNC = """
import sys
import gymnasium as gym
class Probe(gym.Wrapper):
    @property
    def loaded(self):
        return "torch" in sys.modules
def make():
    {extra}
    return Probe(gym.make("icrl_agent:BoyanChain-v0"))
if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([make] * 2, context={context!r})
    envs.reset(seed=0); envs.step([0, 0])
    print(envs.get_attr("loaded"))
    envs.close()
"""


def check_worker_without_torch(tmp_path: Any, context: str, extra: str = "pass") -> None:
    script = tmp_path / "script.py"
    script.write_text(ASYNC.format(context=context, extra=extra))
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr[-500:]
    assert result.stdout == "(False, False)\n"


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_gymnasium_workers_do_not_load_torch(tmp_path: Any, context: str) -> None:
    check_worker_without_torch(tmp_path, context)


def test_worker_check_catches_torch(tmp_path: Any) -> None:
    with pytest.raises(AssertionError):
        check_worker_without_torch(tmp_path, "fork", "sys.modules['torch'] = sys")


def check_same_environment(first: gym.Env[Any, Any], second: gym.Env[Any, Any]) -> None:
    assert type(first.unwrapped) is type(second.unwrapped)
    assert first.unwrapped.mdp.same_tables(second.unwrapped.mdp)
    assert first.unwrapped.reward_noise == second.unwrapped.reward_noise
    assert first.unwrapped.task_seed == second.unwrapped.task_seed
    assert first.reset(seed=3)[0] == second.reset(seed=3)[0]
    assert [first.step(0)[:2] for _ in range(2)] == [second.step(0)[:2] for _ in range(2)]


def test_a_spec_rebuilds_the_environment_also_through_json(case: Any) -> None:
    env = case.make(reward_noise=0.25, max_episode_steps=7)
    check_same_environment(env, gym.make(env.spec))
    text = env.spec.to_json()
    check_same_environment(env, gym.make(EnvSpec.from_json(text)))
    assert EnvSpec.from_json(text) == env.spec
    document = json.loads(text)
    document["kwargs"].pop("reward_noise")
    with pytest.raises(AssertionError):
        check_same_environment(env, gym.make(EnvSpec.from_json(json.dumps(document))))


def test_a_vector_spec_rebuilds_the_vector_environment(case: Any) -> None:
    envs = case.make_vec(3, reward_noise=0.25, max_episode_steps=7, autoreset_mode="SameStep")
    again = gym.make_vec(envs.spec)
    assert again.num_envs == 3
    assert again.mdp.same_tables(envs.mdp)
    assert (again.max_episode_steps, again.autoreset_mode) == (7, envs.autoreset_mode)
    (a, _), (b, _) = envs.reset(seed=1), again.reset(seed=1)
    assert np.array_equal(a, b)
    actions = np.zeros(3, int)
    assert all(np.array_equal(x, y) for x, y in zip(envs.step(actions)[:4], again.step(actions)[:4], strict=True))


SECTIONS = (
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Rewards",
    "Episode End",
    "Exact solution",
    "Arguments",
    "Version History",
)


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def check_page(page: str, arguments: Sequence[str]) -> None:
    found = sections(page)
    assert [name for name in found if name in SECTIONS] == list(SECTIONS)
    assert all(text.strip() for text in found.values())
    named = re.findall(r"``(\w+)(?:=[^`]*)?``", found["Arguments"])
    assert set(arguments) <= set(named)


def entry(env_id: str) -> type:
    return gym.envs.registration.load_env_creator(gym.spec(env_id).entry_point)  # type: ignore[return-value]


def test_pages_have_every_section_and_argument(case: Any) -> None:
    cls = entry(case.id)
    signature = inspect.signature(cls).parameters
    check_page(inspect.getdoc(cls) or "", list(signature))
    defaults = re.findall(r"``(\w+)=([^`]*)``", sections(inspect.getdoc(cls) or "")["Arguments"])
    assert {name: eval(value) for name, value in defaults}.items() <= {
        name: parameter.default for name, parameter in signature.items()
    }.items()
    assert f"{case.id.rsplit('-', 1)[1]}:" in sections(inspect.getdoc(cls) or "")["Version History"]


@pytest.mark.parametrize(
    "change",
    [
        lambda page, names: (page.replace("## Exact solution", "## Solution"), names),
        lambda page, names: (page, [*names, "new_argument"]),
        lambda page, names: (page.replace("``reward_noise=0.0``", "``rewardnoise=0.0``"), names),
        lambda page, names: (re.sub(r"(## Rewards\n)[^#]*", r"\1", page), names),
    ],
    ids=["missing section", "undocumented argument", "misspelt argument", "empty section"],
)
def test_page_check_catches(case: Any, change: Callable[[str, list[str]], tuple[str, list[str]]]) -> None:
    cls = entry(case.id)
    with pytest.raises(AssertionError):
        check_page(*change(inspect.getdoc(cls) or "", list(inspect.signature(cls).parameters)))
