//! Sizes and times for people.

/// Bytes, such as `1.5 GiB`.
#[expect(clippy::cast_precision_loss, reason = "a size for people")]
pub fn bytes(whole: u64) -> String {
    let mut value = whole as f64;
    if whole < 1024 {
        return format!("{whole} B");
    }
    for unit in ["KiB", "MiB", "GiB", "TiB"] {
        value /= 1024.0;
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{:.1} PiB", value / 1024.0)
}

/// Microseconds, such as `1.5 ms`.
#[expect(clippy::cast_precision_loss, reason = "a time for people")]
pub fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}
