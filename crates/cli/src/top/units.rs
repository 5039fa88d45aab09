//! Figures in few columns.

/// Bytes, such as `1.5 GiB`.
pub fn bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return scaled(value, unit);
        }
        value /= 1024.0;
    }
    scaled(value, "PiB")
}

fn scaled(value: f64, unit: &str) -> String {
    if unit == "B" || value >= 99.95 {
        return format!("{value:.0} {unit}");
    }
    format!("{value:.1} {unit}")
}

/// The same for a column of rates: nothing shows as a dash.
pub fn rate(value: f64) -> String {
    if value < 0.5 {
        "-".to_owned()
    } else {
        bytes(value)
    }
}

/// A time in seconds, such as `12 ms`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 9.95 => format!("{s:.0} s"),
        s if s >= 0.9995 => format!("{s:.1} s"),
        s if s >= 0.00995 => format!("{:.0} ms", s * 1e3),
        s if s >= 0.000_995 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

/// One that there may not be.
pub fn time_or_dash(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), time)
}

/// A number of things, such as operations a second.
pub fn number(value: f64) -> String {
    match value {
        v if v < 0.005 => "-".to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 99_999.5 => format!("{v:.0}"),
        v if v < 99_999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, wanted) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1536.0, "1.5 KiB"),
            (1e12, "931 GiB"),
            (1e19, "8882 PiB"),
        ] {
            assert!(bytes(value).starts_with(wanted), "{}", bytes(value));
        }
        let times = [0.0, 0.0001, 0.0012, 0.012, 0.9999, 12.0].map(time);
        assert_eq!(
            times,
            ["0 us", "100 us", "1.2 ms", "12 ms", "1.0 s", "12 s"]
        );
        let numbers = [0.0, 0.5, 12.4, 123_456.0, 2e9].map(number);
        assert_eq!(numbers, ["-", "0.5", "12", "123k", "2000M"]);
    }
}
