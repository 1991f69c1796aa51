//! Names of functions that are short enough for a sentence.

use floodmark_analyze::site::qualified_name;

use crate::flame::without_directories;

/// The string class of C++, as compilers name it.
const STRING: &str = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";

/// Returns the name of a site without directories, and a function of C++ without its type and parameters:
/// `int load(std::vector<int> const&) (/src/a.cpp:7)` becomes `load (a.cpp:7)`.
pub(crate) fn short_name(site: &str) -> String {
    let site = without_directories(site);
    let place = site.rfind(" (").or_else(|| site.rfind(" [")).unwrap_or(site.len());
    let (name, place) = site.split_at(place);
    let name = name.replace(STRING, "std::string");
    // A name of a block may have spaces, but no parameters.
    let name = if name.contains('(') { qualified_name(&name) } else { &name };
    format!("{name}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_left_out_of_names() {
        let string = STRING;
        for (site, short) in [
            (format!("void log_line({string} const&) (/src/orders.cpp:10)"), "log_line (orders.cpp:10)"),
            (
                "Mesh::cells(int (*)(double), Box<2>) const (/src/mesh.cpp:4)".into(),
                "Mesh::cells (mesh.cpp:4)",
            ),
            ("peak() [/home/user/app/t]".into(), "peak [t]"),
            ("<module> (/home/user/train.py:9)".into(), "<module> (train.py:9)"),
            (format!("std::vector<{string}>::push_back"), "std::vector<std::string>::push_back"),
            ("0xa57b9 [libstdc++.so.6]".into(), "0xa57b9 [libstdc++.so.6]"),
            ("weights of layer 1".into(), "weights of layer 1"),
            (String::new(), ""),
        ] {
            assert_eq!(short_name(&site), short);
        }
    }
}
