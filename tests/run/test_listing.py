"""Lists of runs, comparisons over seeds, and reports."""

import fcntl
import json
import shutil
from html.parser import HTMLParser

import gymnasium
import pytest
import torch

from parl.errors import ConfigError, RunDirectoryError
from parl.run import MetricsLog, RunDirectory
from parl.run.compare import before_end, compare_runs, plot_comparison
from parl.run.listing import list_runs
from parl.run.plot import groups
from parl.run.report import write_report
from parl.train import train

SETTINGS = {"env": "CartPole-v1", "total_steps": 100, "evaluation_episodes": 5, "stop_at_return": 475.0}


def make_run(
    root, name, algorithm="ppo", score=None, steps=100, counters=None, own=None, auto=(), **settings
):
    """A run directory with metrics and, with ``counters``, a checkpoint."""
    config = {"algorithm": algorithm, "run": SETTINGS | {"seed": 0} | settings, algorithm: own or {}}
    run = RunDirectory.create(root, name, config, command=["parl", "train", algorithm], auto=auto)
    with MetricsLog(run) as log:
        for step in (steps // 2, steps):
            log.write(
                {
                    "env_steps": step,
                    "wall_time_s": step / 10,
                    "episode_return": step * 1.5,
                    "loss": float("nan"),
                }
            )
        if score is not None:
            log.write(
                {
                    "env_steps": steps,
                    "wall_time_s": steps / 10,
                    "evaluation_return": score,
                    "protocol": "<line>",
                }
            )
    if counters is not None:
        with run.checkpoints.write(steps, score) as folder:
            (folder / "counters.json").write_text(json.dumps({"env_steps": steps} | counters))
    return run


@pytest.fixture
def folder(tmp_path):
    make_run(tmp_path, "b", score=5.0, counters={"score": {"evaluation_return": 5.0}})
    make_run(tmp_path, "c", "dqn", steps=60, counters={})
    make_run(
        tmp_path,
        "a",
        score=480.0,
        steps=40,
        counters={"score": {"evaluation_return": 480.0, "confirmed": 475.0}},
    )
    make_run(tmp_path, "d", "sac", steps=20, env="Pendulum-v1")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.toml").write_bytes(b"\xff")
    (tmp_path / "other").mkdir()
    return tmp_path


def test_runs_are_listed_with_score_steps_time_and_state(folder):
    rows = [
        (one.name, one.algorithm, one.env, one.score, one.steps, one.time_s, one.state)
        for one in list_runs(folder)
    ]
    assert rows == [
        ("a", "ppo", "CartPole-v1", 480.0, 40, 4.0, "ended"),
        ("b", "ppo", "CartPole-v1", 5.0, 100, 10.0, "ended"),
        ("c", "dqn", "CartPole-v1", None, 60, 6.0, "interrupted"),
        ("d", "sac", "Pendulum-v1", None, 20, 2.0, "interrupted"),
        ("e", "", "", None, 0, None, "damaged"),
    ]
    json.dumps([one.record() for one in list_runs(folder)], allow_nan=False)


@pytest.mark.parametrize(("evaluations", "score"), [(5, {"evaluation_return": 5.0}), (0, None)])
@pytest.mark.parametrize(("end", "state"), [(100, "ended"), (200, "interrupted")])
def test_an_extended_run_has_ended_at_its_later_end_only(tmp_path, evaluations, score, end, state):
    counters = {"score": score, "limits": {"total_steps": end, "stop_at_return": None}}
    run = make_run(tmp_path, "run", counters=counters, evaluation_episodes=evaluations)
    assert [one.state for one in list_runs(tmp_path)] == [state]
    # A resume that was killed before its first checkpoint.
    run.write_limits({"total_steps": 300, "stop_at_return": None})
    assert [one.state for one in list_runs(tmp_path)] == ["interrupted"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("score", "abcde"),
        ("steps", "bcade"),
        ("time", "bcade"),
        ("env", "eabcd"),
        ("state", "eabcd"),
        ("algorithm", "ecabd"),
    ],
)
def test_runs_are_sorted(folder, sort, order):
    assert "".join(one.name for one in list_runs(folder, sort)) == order


def test_a_run_whose_lock_is_held_is_running(folder):
    (folder / "a" / "lock").touch()
    assert list_runs(folder)[0].state == "ended"
    with (folder / "a" / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert list_runs(folder)[0].state == "running"


def test_without_evaluations_a_run_ends_with_its_steps(tmp_path):
    make_run(tmp_path, "a", steps=100, counters={}, evaluation_episodes=0)
    make_run(tmp_path, "b", steps=99, counters={}, evaluation_episodes=0)
    assert [one.state for one in list_runs(tmp_path)] == ["ended", "interrupted"]


def test_groups_differ_in_settings_but_not_in_seed(tmp_path):
    scores = {0.1: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 0.2: [9.0]}
    paths = [
        make_run(tmp_path, f"r{rate}-{seed}", score=score, seed=seed, own={"rate": rate}).path
        for rate, values in scores.items()
        for seed, score in enumerate(values)
    ]
    paths.append(make_run(tmp_path, "dqn", "dqn", score=2.0).path)
    alone, many, other = compare_runs(paths)
    assert (alone.name, alone.scores, alone.iqm, alone.interval) == ("ppo rate=0.2", (9.0,), 9.0, None)
    assert (many.name, many.env, other.name) == ("ppo rate=0.1", "CartPole-v1", "dqn")
    # scipy.stats.trim_mean(range(1, 9), 0.25), which rliable uses: the mean of 3, 4, 5, 6.
    assert many.iqm == 4.5
    low, high = many.interval
    assert 1.0 < low < 4.5 < high < 8.0
    picture = plot_comparison([alone, many, other], tmp_path / "plots" / "c.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="xyz"):
        plot_comparison([alone], tmp_path / "c.xyz")


def test_a_run_that_was_made_longer_is_not_compared_with_shorter_ones(tmp_path):
    limits = [
        {},
        {"total_steps": 100, "stop_at_return": 475.0},
        {"total_steps": 900, "stop_at_return": 475.0},
        {"total_steps": 900, "stop_at_return": None},
    ]
    paths = [
        make_run(tmp_path, str(seed), score=seed, seed=seed, counters={"limits": limit} if limit else {}).path
        for seed, limit in enumerate(limits)
    ]
    assert {group.name: group.scores for group in compare_runs(paths)} == {
        "ppo stop_at_return=475.0 total_steps=100": (0.0, 1.0),
        "ppo stop_at_return=475.0 total_steps=900": (2.0,),
        "ppo stop_at_return=None total_steps=900": (3.0,),
    }
    assert sorted(len(members) for members in groups(paths).values()) == [1, 1, 2]


def test_numbers_that_auto_chose_separate_no_seeds(tmp_path):
    made = [(2, ["actors"]), (1, ["actors"]), (2, []), (3, [])]
    paths = [
        make_run(tmp_path, f"ppo-{seed}", score=seed, seed=seed, actors=actors, auto=auto).path
        for seed, (actors, auto) in enumerate(made)
    ]
    found = {group.name: group.scores for group in compare_runs(paths)}
    assert found == {"ppo actors=auto": (0.0, 1.0, 2.0), "ppo actors=3": (3.0,)}
    assert [*groups(paths).values()] == [paths[:3], paths[3:]]


def test_a_run_that_is_given_as_a_copy_and_a_link_too_counts_once(tmp_path):
    runs = [make_run(tmp_path, str(seed), score=score, seed=seed) for seed, score in enumerate((1.0, 5.0))]
    shutil.copytree(runs[0].path, tmp_path / "copy")
    (tmp_path / "link").symlink_to(runs[1].path)
    (group,) = compare_runs([*(run.path for run in runs), tmp_path / "copy", tmp_path / "link"])
    assert group.scores == (1.0, 5.0)
    assert len(groups([*(run.path for run in runs), tmp_path / "copy"])) == 1
    assert sum(map(len, groups([runs[0].path, tmp_path / "copy"]).values())) == 1


def test_groups_of_runs_with_the_same_name_in_several_folders_are_kept(tmp_path):
    paths = [make_run(tmp_path / str(rate), "dqn-0", own={"rate": rate}).path for rate in (1, 2, 3, 4)]
    assert sorted(members for (members,) in groups(paths).values()) == paths


def test_runs_that_differ_in_what_they_print_and_log_are_one_group(tmp_path):
    paths = [make_run(tmp_path, "a", score=1.0, logger=[], quiet=True).path]
    paths.append(make_run(tmp_path, "b", score=2.0, seed=1, logger=["tensorboard"], quiet=False).path)
    (group,) = compare_runs(paths)
    assert (group.name, group.scores) == ("ppo", (1.0, 2.0))
    assert len(groups(paths)) == 1


def test_several_atari_games_are_combined_with_runs_resampled_within_each(tmp_path):
    # Pong: random -20.7, human 14.6. Breakout: 1.7 and 30.5. Normalized scores 0 and 1, each without variance
    # within its game: a bootstrap over all runs together would vary, a stratified one does not.
    scores = {"parl/Pong-v0": -20.7, "parl/Breakout-v0": 30.5}
    paths = [
        make_run(tmp_path, f"{number}-{seed}", score=score, env=env, seed=seed).path
        for number, (env, score) in enumerate(scores.items())
        for seed in range(4)
    ]
    *games, total = compare_runs(paths)
    assert [group.env for group in games] == ["parl/Breakout-v0", "parl/Pong-v0"]
    assert total.env == "human-normalized, 2 games" and len(total.scores) == 8
    assert total.iqm == pytest.approx(0.5)
    assert total.interval == pytest.approx((0.5, 0.5))


def test_only_games_with_the_same_options_are_combined(tmp_path):
    envs = [
        ("parl/Pong-v0", ["frameskip=4"]),
        ("parl/Pong-v0", ["frameskip=2"]),
        ("parl/Breakout-v0", ["frameskip=2"]),
    ]
    paths = [
        make_run(tmp_path, str(number), score=1.0, env=env, env_options=options).path
        for number, (env, options) in enumerate(envs)
    ]
    assert not [group for group in compare_runs(paths[:2]) if "human" in group.env]
    *_, total = compare_runs(paths)
    assert total.env == "human-normalized, 2 games frameskip=2" and len(total.scores) == 2


@pytest.mark.parametrize(
    ("steps", "score", "told"), [(100, 5.0, False), (60, 480.0, False), (60, 5.0, True), (60, 474.0, True)]
)
def test_a_compared_run_that_was_last_evaluated_before_its_end_is_named(tmp_path, steps, score, told):
    run = make_run(tmp_path, "a", score=score, steps=steps)
    sentence = f"{run.path}: the last evaluation was after {steps} of 100 steps"
    assert before_end(run.path) == (sentence if told else None)


def test_a_run_without_evaluation_is_not_compared(tmp_path):
    run = make_run(tmp_path, "a")
    with pytest.raises(RunDirectoryError, match="has no evaluation"):
        compare_runs([run.path])
    with pytest.raises(ConfigError, match="at least one"):
        compare_runs([])


class Page(HTMLParser):
    """Collects the tags of a page and the files to which it refers."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.files, self.text = [], set(), [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.files += [
            value for key, value in attrs if key in ("src", "href", "xlink:href", "data", "srcset")
        ]

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_report_is_one_page_without_other_files(tmp_path):
    run = make_run(tmp_path, "<run>", score=5.0, counters={}, own={"rate": 0.25, "sizes": [64, 32]})
    (run.folder("videos") / "a.gif").write_bytes(b"GIF89a")
    (run.path / "evaluations.jsonl").write_text(
        json.dumps({"checkpoint": "best", "seed": 7, "mean": 6.5, "std": 0.5, "episodes": 9, "protocol": "p"})
        + '\n{"checkpoint": "be'  # where the disk was full
    )
    out = write_report(run.path)
    assert out == run.path / "report.html"
    text = out.read_text()
    page = Page(text)
    assert {"svg", "img", "table"} <= page.tags and not {"link", "script", "iframe"} & page.tags
    assert any(file.startswith("data:image/gif;base64,") for file in page.files)
    assert all(file.startswith(("#", "data:")) for file in page.files)
    assert "@import" not in text and "url(http" not in text
    shown = "".join(page.text)
    for part in (
        "rate",
        "0.25",
        "64, 32",
        "parl eval, best checkpoint, seed 7",
        "<line>",
        "CartPole-v1",
        "numpy",
    ):
        assert part in shown
    assert "nan" not in shown.lower()


def test_a_large_video_is_left_out_of_a_report(tmp_path, monkeypatch):
    run = make_run(tmp_path, "a")
    (run.folder("videos") / "a.mp4").write_bytes(b"12345")
    assert "<video" in write_report(run.path).read_text()
    monkeypatch.setattr("parl.run.report.LARGEST_VIDEO_BYTES", 4)
    assert "<video" not in write_report(run.path, tmp_path / "new" / "out.html").read_text()


def test_foreign_metrics_are_an_error(tmp_path):
    run = make_run(tmp_path, "a")
    for content in (b"[1]\n", b"\xff\xfe"):
        run.metrics.write_bytes(content)
        with pytest.raises(RunDirectoryError, match="is not a file of metrics"):
            write_report(run.path)


def sized(hidden):
    def torso(space):
        made = torch.nn.Linear(space.shape[0], hidden)
        made.out_features = hidden
        return made

    return torso


def test_runs_with_different_functions_of_the_same_name_are_not_seeds_of_each_other(tmp_path):
    options = {"runs": str(tmp_path), "quiet": True, "total_steps": 64, "evaluation_episodes": 1}
    options |= {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 32}

    def made(seed, steps, hidden):
        def env():
            return gymnasium.make("CartPole-v1", max_episode_steps=steps)

        torso = None if hidden is None else sized(hidden)
        return train("ppo", env, seed=seed, torso=torso, name=f"{steps}-{hidden}-{seed}", **options).path

    paths = [made(seed, *rest) for rest in ((9, None), (9, 4), (9, 5), (8, 4)) for seed in (0, 1)]
    assert [len(group.scores) for group in compare_runs(paths)] == [2, 2, 2, 2]
    assert [len(members) for members in groups(paths).values()] == [2, 2, 2, 2]
