//! Numbers as people read them, and where the lines of a scale are.

/// A value in a unit of Grafana.
pub fn shown(value: f64, unit: &str) -> String {
    let short = |value: f64| {
        let digits = usize::from(value.abs() < 10.0 && value.fract().abs() > 0.05);
        format!("{value:.digits$}")
    };
    match unit {
        "s" if value == 0.0 => "0 s".to_owned(),
        "s" if value < 0.001 => format!("{} µs", short(value * 1e6)),
        "s" if value < 1.0 => format!("{} ms", short(value * 1e3)),
        "s" if value < 120.0 => format!("{} s", short(value)),
        "s" => format!("{} min", short(value / 60.0)),
        "reqps" => format!("{}/s", short(value)),
        _ => short(value),
    }
}

/// The distance of the lines of a scale that reaches `most`: 1, 2 or 5 times a power of ten, so that there are at most five.
pub fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let found =
        [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= rough * 0.999_999);
    found.unwrap_or(power * 10.0)
}

/// The lines of a scale from zero that reaches `most`.
pub fn ticks(most: f64) -> Vec<f64> {
    let step = step(most);
    let lines = (0..=5_u32).map(|line| f64::from(line) * step);
    lines.filter(|at| *at <= most + step * 1e-6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_units() {
        let all = [
            (0.0, "s"),
            (0.000_25, "s"),
            (0.25, "s"),
            (7.25, "s"),
            (90.0, "s"),
            (600.0, "s"),
            (2.5, "reqps"),
            (12.0, "none"),
        ];
        let all = all.map(|(value, unit)| shown(value, unit));
        assert_eq!(all, ["0 s", "250 µs", "250 ms", "7.2 s", "90 s", "10 min", "2.5/s", "12"]);
    }

    #[test]
    fn scales_are_round() {
        assert_eq!(ticks(12.0), [0.0, 5.0, 10.0]);
        assert_eq!(ticks(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(0.9).len(), 5);
    }
}
