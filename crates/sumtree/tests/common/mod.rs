//! Exact tail probabilities for the distribution tests.
#![allow(dead_code)] // Each test binary uses a part.

/// A test fails when its outcome, or a more extreme one, had a smaller probability than this.
pub const P_MIN: f64 = 1e-6;

/// log Gamma(x), x > 0. Source: Lanczos (1964) with g = 7 and nine terms, error below 1e-13.
pub fn ln_gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = (1..9).fold(C[0], |sum, i| sum + C[i] / (x + i as f64));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// P(chi-square with `freedom` degrees > `statistic`): the regularized upper incomplete gamma function, by
/// its series below and its continued fraction above the mean.
pub fn chi_square_tail(statistic: f64, freedom: f64) -> f64 {
    let (a, x) = (freedom / 2.0, statistic / 2.0);
    let front = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let (mut b, mut c, mut d) = (x + 1.0 - a, 1e300, 1.0 / (x + 1.0 - a));
    let mut h = d;
    for i in 1..100_000 {
        let an = -(i as f64) * (i as f64 - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * h
}

/// Chi-square of counts against the probabilities of their cells; panics with the figures when it is too large.
pub fn assert_distribution(counts: &[u64], probabilities: &[f64], what: &str) {
    assert_eq!(counts.len(), probabilities.len());
    let n: u64 = counts.iter().sum();
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{what}: probabilities sum to one");
    let mut statistic = 0.0;
    let mut cells = 0.0f64;
    for (count, p) in counts.iter().zip(probabilities) {
        let expected = n as f64 * p;
        if *p == 0.0 {
            assert_eq!(*count, 0, "{what}: an impossible cell was drawn");
            continue;
        }
        assert!(expected > 8.0, "{what}: cells too small for chi-square ({expected})");
        statistic += (*count as f64 - expected).powi(2) / expected;
        cells += 1.0;
    }
    let p = chi_square_tail(statistic, (cells - 1.0).max(1.0));
    assert!(
        p > P_MIN,
        "{what}: chi-square {statistic:.1} on {} degrees of freedom, p = {p:.2e}",
        cells - 1.0
    );
}

/// Exact two-sided binomial test: `hits` of `n` at probability `p`.
pub fn assert_binomial(hits: u64, n: u64, p: f64, what: &str) {
    let (nf, ln_p, ln_q) = (n as f64, p.ln(), (-p).ln_1p());
    let mass = |k: u64| {
        let k = k as f64;
        let choose = ln_gamma(nf + 1.0) - ln_gamma(k + 1.0) - ln_gamma(nf - k + 1.0);
        (choose + k * ln_p + (nf - k) * ln_q).exp()
    };
    // Sum outwards from `hits` until the terms are negligible.
    let tail = |step: &dyn Fn(u64) -> Option<u64>| {
        let (mut sum, mut at) = (0.0, Some(hits));
        while let Some(k) = at {
            let term = mass(k);
            sum += term;
            if term < sum * 1e-14 {
                break;
            }
            at = step(k);
        }
        sum
    };
    let above = tail(&|k| (k < n).then(|| k + 1));
    let below = tail(&|k| k.checked_sub(1));
    let two_sided = (2.0 * above.min(below)).min(1.0);
    assert!(two_sided > P_MIN, "{what}: {hits} of {n} at p = {p:.3e}, two-sided probability {two_sided:.2e}");
}

#[test]
fn tails_agree_with_tables() {
    // 95 % points of chi-square: 3.841 (1), 18.307 (10), 124.342 (100).
    for (x, f) in [(3.841, 1.0), (18.307, 10.0), (124.342, 100.0)] {
        assert!((chi_square_tail(x, f) - 0.05).abs() < 1e-4);
    }
    assert!((ln_gamma(11.0) - 3_628_800f64.ln()).abs() < 1e-12);
    assert_binomial(50, 100, 0.5, "fair");
    assert!(std::panic::catch_unwind(|| assert_binomial(5, 100, 0.5, "unfair")).is_err());
    assert!(std::panic::catch_unwind(|| assert_distribution(&[900, 100], &[0.5, 0.5], "unfair")).is_err());
}
