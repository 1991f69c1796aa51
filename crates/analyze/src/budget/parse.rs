//! Parses rules on growth, such as `growth>5%`.

use std::str::FromStr;

use floodmark_event::units::parse_bytes;

use super::{Budget, BudgetFigure, Limit, MILLION};

/// Figures that a rule can name.
const NAMES: [(&str, BudgetFigure); 6] = [
    ("growth", BudgetFigure::Growth),
    ("peak", BudgetFigure::Peak),
    ("live", BudgetFigure::Live),
    ("leaked", BudgetFigure::Leaked),
    ("allocations", BudgetFigure::Allocations),
    ("rss", BudgetFigure::Rss),
];

/// Parses a number with up to six decimals, in millionths.
fn millionths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + decimals.len() == 0 || !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let decimals: u64 = format!("{decimals:0<6}").parse().ok()?;
    whole.checked_mul(MILLION)?.checked_add(decimals)
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("write a rule such as 'growth>5%', 'peak>10MiB' or 'leaked>0'; figures are {names}")
        };
        let (name, limit) = text.split_once('>').ok_or_else(bad)?;
        let (name, limit) = (name.trim(), limit.trim());
        let figure =
            NAMES.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure).ok_or_else(bad)?;
        let limit = if let Some(percent) = limit.strip_suffix('%') {
            Limit::GrowthPercentMillionths(millionths(percent.trim()).ok_or_else(bad)?)
        } else if figure == BudgetFigure::Allocations {
            Limit::GrowthBy(limit.replace(',', "").parse().map_err(|_| {
                "allocations are counted: write 'allocations>1000' or 'allocations>5%'".to_owned()
            })?)
        } else {
            Limit::GrowthBy(parse_bytes(limit).map_err(|_| bad())?)
        };
        Ok(Self { name: text.to_owned(), figure, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "peak>1e3%",
            "peak>.%",
            "peak>0.0000001%",
            "peak>99999999999999%",
            "",
            "growth",
            "growth<5%",
            "size>5%",
            "peak>-1%",
            "peak>NaN%",
            "peak>much",
            "allocations>5MiB",
        ] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
