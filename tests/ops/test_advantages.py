"""Advantages, lambda returns and V-trace against sums written out in numpy, episode by episode."""

import numpy as np
import pytest
import torch

from parl.ops.advantages import backward_scan, gae, lambda_returns, vtrace

T, N = 12, 5


@pytest.fixture(params=range(4))
def rows(request):
    rng = np.random.default_rng(request.param)
    terminated = rng.random((T, N)) < 0.15
    return {
        "reward": rng.normal(size=(T, N)),
        "value": rng.normal(size=(T, N)),
        "next_value": rng.normal(size=(T, N)),
        "terminated": terminated,
        "ended": terminated | (rng.random((T, N)) < 0.15),
    }


def tensors(rows, *names):
    return [torch.from_numpy(rows[k] if rows[k].dtype == bool else rows[k].astype(np.float32)) for k in names]


def segment(rows, t, n):
    """Rows from t to the end of the episode of step (t, n), within the rollout."""
    end = t
    while not rows["ended"][end, n] and end + 1 < T:
        end += 1
    return range(t, end + 1)


def test_backward_scan_is_a_sum_of_products():
    rng = np.random.default_rng(0)
    x, c, last = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.normal(size=3)
    got = backward_scan(torch.tensor(x), torch.tensor(c), torch.tensor(last))
    expected = [
        sum(np.prod(c[t:k], axis=0) * (x[k] if k < 6 else last) for k in range(t, 7)) for t in range(6)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 1.0), (0.99, 0.0)])
def test_gae_is_the_weighted_sum_of_one_step_errors(rows, gamma, lam):
    got = gae(*tensors(rows, "reward", "value", "next_value", "terminated", "ended"), gamma, lam)
    for t in range(T):
        for n in range(N):
            total = 0.0
            for k in segment(rows, t, n):
                bootstrap = 0.0 if rows["terminated"][k, n] else gamma * rows["next_value"][k, n]
                total += (gamma * lam) ** (k - t) * (rows["reward"][k, n] + bootstrap - rows["value"][k, n])
            assert got[t, n] == pytest.approx(total, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.8), (1.0, 1.0), (0.99, 0.0)])
def test_lambda_returns_mix_the_n_step_returns(rows, gamma, lam):
    got = lambda_returns(*tensors(rows, "reward", "next_value", "terminated", "ended"), gamma, lam)
    for t in range(T):
        for n in range(N):
            steps = segment(rows, t, n)
            returns, discounted = [], 0.0  # the k-step returns, k = 1..
            for k in steps:
                discounted += gamma ** (k - t) * rows["reward"][k, n]
                bootstrap = 0.0 if rows["terminated"][k, n] else rows["next_value"][k, n]
                returns.append(discounted + gamma ** (k - t + 1) * bootstrap)
            weights = [(1 - lam) * lam**i for i in range(len(steps) - 1)] + [lam ** (len(steps) - 1)]
            assert got[t, n] == pytest.approx(np.dot(weights, returns), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("rho_max", "c_max", "lam"), [(1.0, 1.0, 1.0), (2.0, 0.7, 0.9)])
def test_vtrace_equals_equation_1_of_its_paper(rows, rho_max, c_max, lam):
    gamma = 0.9
    ratio = np.exp(np.random.default_rng(9).normal(size=(T, N)) * 0.7)
    columns = tensors(rows, "reward", "value", "next_value", "terminated", "ended")
    got = vtrace(*columns, torch.from_numpy(np.log(ratio).astype(np.float32)), gamma, lam, rho_max, c_max)
    rho, c = np.minimum(ratio, rho_max), lam * np.minimum(ratio, c_max)
    alive = gamma * ~rows["terminated"]
    delta = rho * (rows["reward"] + alive * rows["next_value"] - rows["value"])
    target = np.empty((T, N))
    for t in range(T):
        for n in range(N):
            steps = segment(rows, t, n)
            target[t, n] = rows["value"][t, n] + sum(
                gamma ** (k - t) * np.prod(c[t:k, n]) * delta[k, n] for k in steps
            )
    np.testing.assert_allclose(got.target, target, rtol=1e-3, atol=1e-4)
    for t in range(T):
        for n in range(N):
            last = rows["ended"][t, n] or t == T - 1
            following = rows["next_value"][t, n] if last else target[t + 1, n]
            advantage = rho[t, n] * (rows["reward"][t, n] + alive[t, n] * following - rows["value"][t, n])
            assert got.advantage[t, n] == pytest.approx(advantage, rel=1e-3, abs=1e-4)


def test_vtrace_on_policy_with_consistent_values_is_the_lambda_return():
    """With ratio 1 and next values equal to the following row's values, targets are Monte Carlo returns."""
    rng = np.random.default_rng(3)
    value = torch.tensor(rng.normal(size=(T + 1, N)), dtype=torch.float32)
    reward = torch.tensor(rng.normal(size=(T, N)), dtype=torch.float32)
    never = torch.zeros(T, N, dtype=torch.bool)
    got = vtrace(reward, value[:-1], value[1:], never, never, torch.zeros(T, N), 0.95)
    expected = lambda_returns(reward, value[1:], never, never, 0.95, 1.0)
    torch.testing.assert_close(got.target, expected, rtol=1e-4, atol=1e-5)
