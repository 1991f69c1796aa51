//! Names of functions that are short enough for a sentence.

use crate::flame::without_directories;

/// The string class of C++, as compilers name it.
const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";

/// Returns the name of a site without directories, and without the parameters of a function of C++:
/// `load(std::vector<int> const&) (/src/a.cpp:7)` becomes `load(…) (a.cpp:7)`.
pub(crate) fn short_name(site: &str) -> String {
    let site = without_directories(site);
    let place = site.rfind(" (").or_else(|| site.rfind(" [")).unwrap_or(site.len());
    let (name, place) = site.split_at(place);
    let name = name.replace(STRING, "std::string");
    let Some(open) = parameters(&name) else { return format!("{name}{place}") };
    format!("{}(…){place}", &name[..open])
}

/// Returns where the parameters of a function begin, if it has any.
fn parameters(name: &str) -> Option<usize> {
    let end = name.strip_suffix(" const").unwrap_or(name);
    if !end.ends_with(')') {
        return None;
    }
    let mut depth = 0;
    for (at, character) in end.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            // An empty list is as short as the sign for one that is left out.
            return (at > 0 && at + 2 < end.len()).then_some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_left_out_of_names() {
        let string = STRING;
        for (site, short) in [
            (format!("log_line({string} const&) (/src/orders.cpp:10)"), "log_line(…) (orders.cpp:10)"),
            (
                "Mesh::cells(int (*)(double), Box<2>) const (/src/mesh.cpp:4)".into(),
                "Mesh::cells(…) (mesh.cpp:4)",
            ),
            ("peak() [/home/user/app/t]".into(), "peak() [t]"),
            ("operator()(int) [lib.so]".into(), "operator()(…) [lib.so]"),
            ("(anonymous namespace)::fill(int)".into(), "(anonymous namespace)::fill(…)"),
            (
                "<alloc::vec::Vec<T> as Extend<T>>::extend (/src/main.rs:3)".into(),
                "<alloc::vec::Vec<T> as Extend<T>>::extend (main.rs:3)",
            ),
            ("<module> (/home/user/train.py:9)".into(), "<module> (train.py:9)"),
            (format!("std::vector<{string}>::push_back"), "std::vector<std::string>::push_back"),
            ("0xa57b9 [libstdc++.so.6]".into(), "0xa57b9 [libstdc++.so.6]"),
            ("(int)".into(), "(int)"),
            ("odd)".into(), "odd)"),
            (String::new(), ""),
        ] {
            assert_eq!(short_name(&site), short);
        }
    }
}
