"""Stop a run when its evaluations no longer improve, with a callback."""

import os

import parl


class StopOnPlateau(parl.Callback):
    """Ends a run after more than ``patience`` evaluations in a row without a new highest mean return.

    Args:
        patience: evaluations without improvement that are allowed.
        min_improvement: difference of mean returns that counts as an improvement.
    """

    def __init__(self, patience=3, min_improvement=0.0):
        self.patience, self.min_improvement = patience, min_improvement

    def on_start(self, run):
        print(f"{run.algorithm} on {run.settings['run']['env']}, in {run.path}")
        self.best, self.waited = float("-inf"), 0

    def on_evaluation(self, evaluation):
        if evaluation.mean_return > self.best + self.min_improvement:
            self.best, self.waited = evaluation.mean_return, 0
        else:
            self.waited += 1
        print(
            f"{evaluation.env_steps:,} steps: mean return {evaluation.mean_return:.1f}, best {self.best:.1f}"
        )
        return self.waited <= self.patience  # False ends the run, with a checkpoint

    def on_end(self, result):
        print(f"ended by {result.stopped} after {result.env_steps:,} steps")


if __name__ == "__main__":
    # Documentation tests set this variable to check that the script runs, not that it learns.
    quick = (
        {"evaluation_every": 500, "evaluation_episodes": 5} if os.environ.get("PARL_EXAMPLE_QUICK") else {}
    )
    options = {"total_steps": 500_000, "evaluation_every": 10_000, "evaluation_episodes": 20} | quick

    run = parl.train("ppo", env="CartPole-v1", quiet=True, callbacks=[StopOnPlateau()], **options)
    assert run.stopped == "callback"
    print(parl.evaluate(run.path, episodes=20).mean())
