//! The way from the outermost call to a block, as text: what nodes of a flame graph are called.
//!
//! Frames of interpreters, runtimes and allocators come in long runs; a run becomes one step that counts
//! them. So does a call that repeats itself. The classes that [`SiteRules`] gives to frames decide which
//! are folded: where a stack has code of the user or of packages, everything else is; where it has none,
//! functions of libraries stay. The site always stays, so that folding never leaves a stack without a name.
//!
//! For comparing two runs, places lose what differs by chance: addresses and numbers of lines.

use floodmark_event::tables::Frame;
use floodmark_event::units::format_bytes;
use floodmark_event::{StackId, Tables};

use crate::origins::{BlockOrigin, FallbackOrigin};
use crate::scopes::ScopePaths;
use crate::site::{FrameClass, NO_SITE, SiteRules};

/// What stands for the scope of blocks that have none.
pub const NO_SCOPE: &str = "(no scope)";

/// Functions of packages that pass every call on, by their whole name.
const HANDING_ON: [&str; 4] =
    ["_call_impl", "_call_with_frames_removed", "_wrapped_call_impl", "decorate_context"];

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A call, a name, a scope.
    Call(String),
    /// A run of folded frames, and their number.
    Folded(u32),
}

impl Step {
    /// What it is called where the number of frames does not matter.
    pub fn text(&self) -> &str {
        match self {
            Self::Call(text) => text,
            Self::Folded(_) => "…",
        }
    }
}

/// What steps are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathBy {
    /// The whole call stack.
    #[default]
    Stack,
    /// The site alone.
    Site,
    /// The scopes, and the site in them.
    Scope,
}

/// Which frames are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameChoice {
    /// Runs of frames that are not the user's become one step.
    #[default]
    Folded,
    /// All.
    All,
}

/// How exactly places are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exactness {
    /// As recorded.
    #[default]
    Recorded,
    /// Without addresses and lines, threads and streams, which differ between two runs or versions of a
    /// program.
    Lasting,
}

/// Turns origins into paths.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    /// What steps are made of.
    pub by: PathBy,
    /// Which frames are shown.
    pub frames: FrameChoice,
    /// How exactly places are named.
    pub exactness: Exactness,
    /// Decides whose code frames are.
    pub sites: SiteRules,
    /// Names of scopes.
    pub scopes: ScopePaths,
}

impl PathRules {
    /// The steps that lead to blocks of an origin, outermost first; never none.
    pub fn path(&self, origin: &BlockOrigin, tables: &Tables) -> Vec<Step> {
        let site = || Step::Call(self.site(origin, tables));
        match self.by {
            PathBy::Site => vec![site()],
            PathBy::Scope => {
                let mut path: Vec<Step> = self.scope(origin.scope).into_iter().map(Step::Call).collect();
                path.push(site());
                path
            }
            PathBy::Stack if origin.stack.0 != 0 => self.stack(origin.stack, tables),
            PathBy::Stack => match (tables.string(origin.name), &origin.otherwise) {
                ("", Some(otherwise)) => self.without_origin(otherwise),
                ("", None) => vec![Step::Call(NO_SITE.to_owned())],
                (name, _) => vec![Step::Call(name.to_owned())],
            },
        }
    }

    /// Names from the outermost scope to this one.
    fn scope(&self, scope: u64) -> Vec<String> {
        let mut names = self.scopes.names(self.scopes.path(scope));
        if names.is_empty() {
            names.push(if scope == 0 { NO_SCOPE.to_owned() } else { format!("scope {scope}") });
        }
        names
    }

    /// The place in the program that an origin is.
    pub fn site(&self, origin: &BlockOrigin, tables: &Tables) -> String {
        match self.sites.frame_of(origin.stack, tables) {
            Some(frame) => self.text(&frame, tables),
            None => self.sites.site(origin.stack, origin.name, tables),
        }
    }

    /// The frames of a stack, outermost first; none only if there are none.
    pub fn stack(&self, stack: StackId, tables: &Tables) -> Vec<Step> {
        let mut frames: Vec<Frame> = tables.frames_of(stack).collect();
        let mut shown = self.shown(&frames, tables);
        frames.reverse();
        shown.reverse();
        let texts = frames.iter().map(|frame| self.text(frame, tables));
        if self.frames == FrameChoice::All {
            return texts.map(Step::Call).collect();
        }
        fold(texts.zip(shown))
    }

    fn without_origin(&self, otherwise: &FallbackOrigin) -> Vec<Step> {
        let FallbackOrigin { thread, stream, at_most_bytes } = otherwise;
        let size = match at_most_bytes {
            0 | 1 => format!("blocks of {}", format_bytes(*at_most_bytes)),
            most => format!("blocks up to {}", format_bytes(*most)),
        };
        let mut path = match self.exactness {
            Exactness::Recorded => vec![format!("thread {thread}"), format!("stream {stream:#x}")],
            // Both are numbers that every run has its own of.
            Exactness::Lasting => Vec::new(),
        };
        path.push(size);
        path.into_iter().map(Step::Call).collect()
    }

    /// Tells for each frame of a stack, innermost first, whether it is shown where frames are folded.
    pub(crate) fn shown(&self, frames: &[Frame], tables: &Tables) -> Vec<bool> {
        let classes: Vec<FrameClass> = frames.iter().map(|frame| self.sites.class(frame, tables)).collect();
        let Some(best) = classes.iter().min().copied() else { return Vec::new() };
        let is_shown = |class: FrameClass| match class {
            FrameClass::User | FrameClass::Package => true,
            // An address says something beside other code of the user only.
            FrameClass::UnnamedUser => matches!(best, FrameClass::User | FrameClass::UnnamedUser),
            FrameClass::Library | FrameClass::Plumbing | FrameClass::UnnamedLibrary => class == best,
            FrameClass::Runtime | FrameClass::UnnamedRuntime => false,
        };
        let is_handed_on = |frame: &Frame| HANDING_ON.contains(&tables.string(frame.function));
        let frames = frames.iter().zip(&classes);
        let mut shown: Vec<bool> =
            frames.map(|(frame, class)| is_shown(*class) && !is_handed_on(frame)).collect();
        // The site is the innermost frame of the best class.
        if let Some(site) = classes.iter().position(|class| *class == best) {
            shown[site] = true;
        }
        shown
    }

    fn text(&self, frame: &Frame, tables: &Tables) -> String {
        if self.exactness == Exactness::Recorded {
            return tables.frame_text(frame);
        }
        let mut frame = *frame;
        frame.line = 0;
        if tables.string(frame.function).is_empty() {
            let module = tables.string(frame.module);
            return if module.is_empty() { "??".to_owned() } else { format!("?? [{module}]") };
        }
        without_addresses(&tables.frame_text(&frame))
    }
}

/// Turns runs of frames that are not shown, and repetitions of a call, into one step each.
fn fold(calls: impl Iterator<Item = (String, bool)>) -> Vec<Step> {
    let mut path: Vec<Step> = Vec::new();
    // The latest call that is shown, as long as nothing but itself was called from it.
    let mut latest: Option<String> = None;
    for (text, is_shown) in calls {
        let repeats = latest.as_ref() == Some(&text);
        match path.last_mut() {
            Some(Step::Folded(count)) if !is_shown || repeats => *count += 1,
            _ if !is_shown || repeats => path.push(Step::Folded(1)),
            _ => path.push(Step::Call(text.clone())),
        }
        if !repeats {
            latest = is_shown.then_some(text);
        }
    }
    path
}

/// Replaces what looks like an address, `0x` and digits, by `0x…`: it differs from run to run.
pub fn without_addresses(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let (before, digits) = (&rest[..at], &rest[at + 2..]);
        let count = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        // `matrix_10x4` is a name.
        let is_number = count > 0 && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        kept += before;
        kept += if is_number { "0x…" } else { "0x" };
        rest = if is_number { &digits[count..] } else { digits };
    }
    kept + rest
}

/// The place without its line, and the line: `load (app.py)` and 9 of `load (app.py:9)`.
pub(crate) fn without_line(place: &str) -> (String, u64) {
    let parts = || {
        let (head, line) = place.strip_suffix(')')?.rsplit_once(':')?;
        let number: u64 = line.parse().ok()?;
        head.contains(" (").then(|| (format!("{head})"), number))
    };
    parts().unwrap_or_else(|| (place.to_owned(), 0))
}

#[cfg(test)]
mod tests {
    use floodmark_event::StringId;
    use proptest::prelude::*;

    use super::*;

    fn stack(tables: &mut Tables, frames: &[(&str, &str)]) -> StackId {
        frames.iter().fold(StackId(0), |parent, (function, file)| {
            let frame = Frame {
                function: tables.intern(function),
                file: tables.intern(file),
                line: 7,
                address: 0x7f00_1234,
                ..Frame::default()
            };
            let frame = tables.intern_frame(frame);
            tables.intern_stack(parent, frame)
        })
    }

    fn call(text: &str) -> Step {
        Step::Call(text.to_owned())
    }

    #[test]
    fn runs_of_an_interpreter_become_one_step() {
        let mut tables = Tables::default();
        let frames = [
            ("_start", ""),
            ("__libc_start_main", ""),
            ("Py_RunMain", ""),
            ("main", "app.py"),
            ("_PyEval_EvalFrameDefault", ""),
            ("_PyFunction_Vectorcall", ""),
            ("load", "app.py"),
            ("malloc", ""),
        ];
        let stack = stack(&mut tables, &frames);
        let rules = PathRules::default();
        let folded = rules.stack(stack, &tables);
        let (main, load) = (call("main (app.py:7)"), call("load (app.py:7)"));
        assert_eq!(folded, [Step::Folded(3), main, Step::Folded(2), load, Step::Folded(1)]);
        let all = PathRules { frames: FrameChoice::All, ..rules }.stack(stack, &tables);
        assert_eq!(all.len(), frames.len());
        assert!(all.iter().all(|step| matches!(step, Step::Call(_))));
    }

    #[test]
    fn a_call_that_repeats_itself_is_said_once_and_a_stack_of_nothing_else_keeps_its_site() {
        let mut tables = Tables::default();
        let walk = stack(&mut tables, &[("main", "a.c"), ("walk", "a.c"), ("walk", "a.c"), ("walk", "a.c")]);
        let runtime = stack(&mut tables, &[("_start", ""), ("__libc_start_main", ""), ("malloc", "")]);
        let alone = stack(&mut tables, &[("malloc", "")]);
        let rules = PathRules::default();
        assert_eq!(rules.stack(walk, &tables), [call("main (a.c:7)"), call("walk (a.c:7)"), Step::Folded(2)]);
        assert_eq!(rules.stack(runtime, &tables), [Step::Folded(2), call("malloc")]);
        assert_eq!(rules.stack(alone, &tables), [call("malloc")]);
    }

    #[test]
    fn lasting_names_have_neither_addresses_nor_lines() {
        let mut tables = Tables::default();
        let named = stack(&mut tables, &[("main", "a.c"), ("", "")]);
        let rules =
            PathRules { exactness: Exactness::Lasting, frames: FrameChoice::All, ..PathRules::default() };
        assert_eq!(rules.stack(named, &tables), [call("main (a.c)"), call("??")]);
        for (text, without) in [
            ("0x7f12ab [lib.so+0x10]", "0x… [lib.so+0x…]"),
            ("matrix_10x4", "matrix_10x4"),
            ("0x", "0x"),
            ("é0xff", "é0xff"),
        ] {
            assert_eq!(without_addresses(text), without);
        }
        assert_eq!(without_line("load (a.py:9)"), ("load (a.py)".to_owned(), 9));
        assert_eq!(without_line("f(std::pair:3)"), ("f(std::pair:3)".to_owned(), 0));
    }

    #[test]
    fn blocks_of_nowhere_last_by_their_size_alone() {
        let tables = Tables::default();
        let path = |exactness, at_most_bytes| {
            let otherwise = Some(FallbackOrigin { thread: 7, stream: 0x10, at_most_bytes });
            let origin = BlockOrigin { otherwise, ..BlockOrigin::default() };
            PathRules { exactness, ..PathRules::default() }.path(&origin, &tables)
        };
        let (thread, stream, size) = (call("thread 7"), call("stream 0x10"), call("blocks up to 1.00 KiB"));
        assert_eq!(path(Exactness::Recorded, 1024), [thread, stream, size.clone()]);
        assert_eq!(path(Exactness::Lasting, 1024), [size]);
        assert_eq!(path(Exactness::Lasting, 0), [call("blocks of 0 B")]);
    }

    #[test]
    fn scopes_lead_from_the_outermost() {
        let mut rules = PathRules::default();
        rules.scopes.add(1, 0, "epoch");
        rules.scopes.add(2, 1, "step");
        assert_eq!(rules.scope(2), ["epoch", "step"]);
        assert_eq!((rules.scope(0), rules.scope(7)), (vec![NO_SCOPE.to_owned()], vec!["scope 7".to_owned()]));
    }

    #[test]
    fn a_stack_without_code_of_the_user_shows_functions_of_libraries() {
        let mut tables = Tables::default();
        let frames = [
            ("_start", ""),
            ("_PyEval_EvalFrameDefault", ""),
            ("at::native::conv2d()", "Convolution.cpp"),
            ("at::_ops::empty::call()", ""),
            ("cudaMalloc", ""),
        ];
        let library = stack(&mut tables, &frames);
        let call = call("at::native::conv2d() (Convolution.cpp:7)");
        assert_eq!(PathRules::default().stack(library, &tables), [Step::Folded(2), call, Step::Folded(2)]);
    }

    proptest! {
        #[test]
        fn folding_loses_no_frame_and_keeps_the_site(picks in prop::collection::vec(0..FRAMES.len(), 1..30)) {
            let mut tables = Tables::default();
            let frames: Vec<(&str, &str)> = picks.iter().map(|pick| FRAMES[*pick]).collect();
            let stack = stack(&mut tables, &frames);
            let rules = PathRules::default();
            let path = rules.stack(stack, &tables);
            let count = |step: &Step| match step {
                Step::Call(_) => 1,
                Step::Folded(count) => *count as usize,
            };
            prop_assert_eq!(path.iter().map(count).sum::<usize>(), frames.len());
            let site = Step::Call(rules.sites.site(stack, StringId(0), &tables));
            prop_assert!(path.contains(&site), "{:?} has no {:?}", path, site);
        }
    }

    /// One frame of every class, and some twice.
    const FRAMES: [(&str, &str); 9] = [
        ("step", "train.py"),
        ("load", "train.py"),
        ("forward", "/env/lib/python3.12/site-packages/torch/nn/linear.py"),
        ("_call_impl", "/env/lib/python3.12/site-packages/torch/nn/module.py"),
        ("at::native::conv2d()", ""),
        ("at::_ops::empty::call()", ""),
        ("std::vector<int>::push_back(int)", ""),
        ("cudaMalloc", ""),
        ("", ""),
    ];
}
