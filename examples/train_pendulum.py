"""Swing a pendulum up with the Python API: learn, evaluate, save, load, act.

python examples/train_pendulum.py            # ten episodes of Gymnasium's Pendulum-v1: minutes
python examples/train_pendulum.py --quick    # the same steps in seconds, too short to learn anything
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium

import sombrl

QUICK = {
    "episode_length": 10,
    "gp": {"capacity": 64, "rank": 16, "fit_steps": 5, "fit_points": 32},
    "icem": {"num_samples": 20, "num_elites": 4, "iterations": 2, "horizon": 5},
}


def main() -> None:
    """Train, then show that the saved agent is the trained one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--out", type=Path, help="where the agent is saved; default: nowhere for long")
    args = parser.parse_args()

    agent = sombrl.GPICEM("Pendulum-v1", explore="optimistic", seed=0, **(QUICK if args.quick else {}))
    agent.learn(20 if args.quick else 2000, progress=True)  # decisions, rounded up to whole episodes
    print("returns of two new episodes:", agent.evaluate(2).ravel().round(1))

    with tempfile.TemporaryDirectory() as scratch:
        folder = args.out or Path(scratch) / "pendulum"
        agent.save(folder)
        agent = sombrl.load(folder)

    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=1)
    state, total = None, 0.0
    for _ in range(10):
        action, state = agent.predict(obs, state)  # hand `state` back: the next plan starts from this one
        obs, reward, *_ = env.step(action)
        total += float(reward)
    print(f"the loaded agent earned {total:.1f} in its first ten steps")


if __name__ == "__main__":
    main()
