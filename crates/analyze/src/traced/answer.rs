//! What is answered about traced calls.

use serde::{Deserialize, Serialize};

use super::{CallOrder, Recorded};

/// What functions gained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Which events were recorded. Numbers of calls, callers and cumulative bytes are known only where all were.
    pub recorded: Recorded,
    /// Calls, returns and exceptions that were recorded.
    pub events: u64,
    /// Calls of functions of the interpreted language.
    pub calls: u64,
    /// Calls of native functions.
    pub native_calls: u64,
    /// Functions that were left by an exception.
    pub exceptions: u64,
    /// Processes that were traced.
    pub processes: u64,
    /// Threads that were traced.
    pub threads: u64,
    /// Instant that elapsed times count from.
    pub origin_time_ns: Option<i64>,
    /// Time of the last event.
    pub last_time_ns: Option<i64>,
    /// Resident bytes when each process was first seen, added up.
    pub first_rss_bytes: u64,
    /// Resident bytes when each process was last seen, added up.
    pub last_rss_bytes: u64,
    /// The most resident bytes of one process.
    pub peak_rss_bytes: u64,
    /// When it had them.
    pub peak_time_ns: Option<i64>,
    /// All increases.
    pub gained_bytes: u64,
    /// All decreases.
    pub released_bytes: u64,
    /// The function in which the largest increase at one event happened, and the increase.
    pub largest_step: Option<LargestStep>,
    /// Returns without a call and calls without a return, which the end of a recording leaves too.
    pub unbalanced: u64,
    /// Times at which events were left out, so that callers are not known.
    pub gaps: u64,
    /// What the functions are sorted by.
    pub order: CallOrder,
    /// Functions, the most important first.
    pub functions: Vec<TracedFunction>,
    /// Functions that are not listed.
    pub functions_omitted: u64,
    /// Lines that gained or released, those that gained most first.
    pub lines: Vec<TracedLine>,
    /// Lines that are not listed.
    pub lines_omitted: u64,
    /// Places where a function calls another one that gained or released, itself or in what it calls; those that gained
    /// most first.
    pub call_sites: Vec<CallSite>,
    /// Call sites that are not listed.
    pub call_sites_omitted: u64,
    /// Resident bytes over time, of all processes together.
    pub rss_points: Vec<RssPoint>,
    /// Equal parts of the time, and the functions that gained most in each.
    pub periods: Vec<CallPeriod>,
    /// The call tree, depth first, calls that gained most first; empty unless asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tree: Vec<CallNode>,
}

/// Resident bytes in a short time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RssPoint {
    /// When the time begins; it ends with the next point.
    pub time_ns: i64,
    /// The most resident bytes in it; the highest figures of several processes are added up.
    pub rss_bytes: u64,
}

/// A part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPeriod {
    /// When it begins.
    pub from_ns: i64,
    /// When it ends.
    pub to_ns: i64,
    /// The most resident bytes in it; the highest figures of several processes are added up.
    pub peak_rss_bytes: u64,
    /// Increases.
    pub gained_bytes: u64,
    /// Decreases.
    pub released_bytes: u64,
    /// Functions that gained most themselves, at most three.
    pub functions: Vec<FunctionGain>,
}

/// What a function gained in a part of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionGain {
    /// Its name.
    pub function: String,
    /// Increases while it ran itself.
    pub gained_bytes: u64,
}

/// A place where a function calls another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// The function that calls.
    pub caller: String,
    /// File of the function that calls.
    pub file: String,
    /// Line of the call; 0 where a tracer does not say it, which is so for calls of Python functions.
    pub line: u32,
    /// The function that is called.
    pub function: String,
    /// How often it was called there.
    pub calls: u64,
    /// Increases while it or what it called ran.
    pub gained_bytes: u64,
    /// Decreases while it or what it called ran.
    pub released_bytes: u64,
    /// Increases less decreases while it or what it called ran.
    pub cumulative_bytes: i64,
}

/// A call in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallNode {
    /// Number of calls around it.
    pub depth: u64,
    /// The function.
    pub function: String,
    /// File, empty for native functions.
    pub file: String,
    /// Line where the function begins, 0 where not known.
    pub line: u32,
    /// How often it was called on this path.
    pub calls: u64,
    /// Increases while it ran itself.
    pub own_gained_bytes: u64,
    /// Increases while it or what it called ran.
    pub gained_bytes: u64,
    /// Decreases while it or what it called ran.
    pub released_bytes: u64,
    /// Calls below it that are not listed.
    pub omitted: u64,
}

/// The largest increase between two events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargestStep {
    /// The function.
    pub function: String,
    /// By how much.
    pub bytes: u64,
    /// When it was seen.
    pub time_ns: i64,
}

/// A function, and what it gained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedFunction {
    /// Its name.
    pub function: String,
    /// File, empty for native functions.
    pub file: String,
    /// Line where it begins, 0 where not known.
    pub line: u32,
    /// Whether it is native.
    pub is_native: bool,
    /// How often it was called.
    pub calls: u64,
    /// Increases while it ran itself.
    pub gained_bytes: u64,
    /// Decreases while it ran itself.
    pub released_bytes: u64,
    /// Increases less decreases while it ran itself.
    pub own_bytes: i64,
    /// Increases less decreases while it or what it called ran.
    pub cumulative_bytes: i64,
}

/// A line of a function, and what it gained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedLine {
    /// The function, and the native function that the line called if that is where the change happened.
    pub function: String,
    /// File.
    pub file: String,
    /// Number of the line, 0 where not known.
    pub line: u32,
    /// Increases.
    pub gained_bytes: u64,
    /// Decreases.
    pub released_bytes: u64,
}
