//! How agents are to take stacks, as numbers in a message.

use floodmark_sampler::stacks::Tool;
use floodmark_sampler::{StackMethod, StackProps, StackWhen};

/// Stands for a value that is not set.
const NONE: u64 = u64::MAX;

/// Returns the numbers that stand for `props`.
pub fn encode(props: &StackProps) -> Vec<u64> {
    let method = match props.method {
        StackMethod::Native => 1,
        StackMethod::Python => 2,
        StackMethod::Tool(Tool::Gdb) => 3,
        StackMethod::Tool(Tool::Lldb) => 4,
        StackMethod::Tool(Tool::EuStack) => 5,
    };
    let when = &props.when;
    let share = |share: Option<f64>| share.map_or(NONE, f64::to_bits);
    vec![
        method,
        share(when.peak_share),
        share(when.growth_share),
        when.interval_ns.unwrap_or(NONE),
        share(when.limit_share),
        when.limit_bytes.unwrap_or(NONE),
        when.most_time.to_bits(),
    ]
}

/// Returns what the numbers stand for; none if no stacks are wanted, or the numbers make no sense.
pub fn decode(numbers: &[u64]) -> Option<StackProps> {
    let &[method, peak, growth, interval, limit_share, limit_bytes, most_time] = numbers else { return None };
    let method = match method {
        1 => StackMethod::Native,
        2 => StackMethod::Python,
        3 => StackMethod::Tool(Tool::Gdb),
        4 => StackMethod::Tool(Tool::Lldb),
        5 => StackMethod::Tool(Tool::EuStack),
        _ => return None,
    };
    let set = |number: u64| Some(number).filter(|number| *number != NONE);
    let share = |bits: u64| set(bits).map(f64::from_bits).filter(|share| share.is_finite() && *share >= 0.0);
    let when = StackWhen {
        peak_share: share(peak),
        growth_share: share(growth),
        interval_ns: set(interval),
        limit_share: share(limit_share),
        limit_bytes: set(limit_bytes),
        most_time: share(most_time)?,
    };
    Some(StackProps { method, when })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        let when = StackWhen { growth_share: Some(0.25), interval_ns: Some(7), ..StackWhen::default() };
        for method in [
            StackMethod::Native,
            StackMethod::Python,
            StackMethod::Tool(Tool::Gdb),
            StackMethod::Tool(Tool::Lldb),
            StackMethod::Tool(Tool::EuStack),
        ] {
            let props = StackProps { method, when: when.clone() };
            assert_eq!(decode(&encode(&props)), Some(props));
        }
        for garbage in [&[][..], &[1], &[9; 7], &[1, 0, 0, 0, 0, 0, NONE]] {
            assert_eq!(decode(garbage), None, "{garbage:?}");
        }
    }
}
