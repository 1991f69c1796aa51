//! Numbers as logs of samples write them.

use floodmark_event::units::NS_PER_S;

/// Text of a field, if it is text at all.
pub(crate) fn text(field: &[u8]) -> Option<&str> {
    str::from_utf8(field).ok().map(str::trim)
}

/// Parses a whole number without sign.
pub(crate) fn whole(text: &str) -> Option<u64> {
    // `parse` takes a plus sign, which no tool writes.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Parses seconds with up to nine decimals, and passes over further ones, into nanoseconds.
pub(crate) fn seconds_ns(text: &str) -> Option<i64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &decimals[..decimals.len().min(9)];
    let fraction_ns = whole(kept)? * 10u64.pow(9 - kept.len() as u32);
    let whole_ns = i64::try_from(whole(seconds)?).ok()?.checked_mul(NS_PER_S)?;
    whole_ns.checked_add_unsigned(fraction_ns)
}

/// Parses a number of MiB, with decimals or in scientific notation, into bytes: a whole number of pages
/// if that is what the decimals may stand for.
pub(crate) fn mib(text: &str) -> Option<u64> {
    const MOST: f64 = (1u64 << 43) as f64;
    const MIB: f64 = (1 << 20) as f64;
    const PAGE: f64 = 4096.0;
    let bytes = plain_float(text).filter(|mib| (0.0..MOST).contains(mib))? * MIB;
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let pages = (bytes / PAGE).round() * PAGE;
    // Half of the last decimal is what rounding can have taken.
    let is_pages =
        decimals > 0 && (pages - bytes).abs() <= MIB * 0.501 * 0.1f64.powi(decimals.min(20) as i32);
    Some(if is_pages { pages } else { bytes.round() } as u64)
}

/// Parses seconds as a floating-point number, as Python prints them, into nanoseconds.
pub(crate) fn float_seconds_ns(text: &str) -> Option<i64> {
    const MOST: f64 = 9e9;
    let seconds = plain_float(text)?;
    (0.0..MOST).contains(&seconds).then(|| (seconds * NS_PER_S as f64).round() as i64)
}

/// A floating-point number that is written with digits.
fn plain_float(text: &str) -> Option<f64> {
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        assert_eq!(seconds_ns("1794724130.446520"), Some(1_794_724_130_446_520_000));
        assert_eq!(seconds_ns("7"), Some(7_000_000_000));
        assert_eq!(seconds_ns("0.1234567891"), Some(123_456_789));
        for bad in ["", ".5", "1.", "-1.0", "1.5e3", "9223372037", "+1", "1.0x"] {
            assert_eq!(seconds_ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_in_mib_are_whole_pages_where_they_may_be() {
        assert_eq!(mib("30.898438"), Some(7910 * 4096));
        assert_eq!(mib("30.898440"), Some(32_399_363));
        assert_eq!(mib("71.008"), Some(18178 * 4096));
        assert_eq!(mib("0.001"), Some(1049));
        assert_eq!(mib("6e-05"), Some(63));
        assert_eq!(mib("2575"), Some(2575 << 20));
        for bad in ["", "-1", "nan", "inf", "1e300", "NaN", ".5", "1 2"] {
            assert_eq!(mib(bad), None, "{bad}");
        }
        assert_eq!(float_seconds_ns("6.222724914550781e-05"), Some(62_227));
        assert_eq!(float_seconds_ns("1e11"), None);
    }
}
