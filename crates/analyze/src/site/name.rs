//! The qualified name of a function within its demangled signature.

/// Returns the qualified name of a function without return type and arguments:
/// `solver::step<float>` of `std::vector<float> solver::step<float>(int) [clone .cold]`.
pub fn qualified_name(signature: &str) -> &str {
    let bytes = signature.as_bytes();
    let (mut depth, mut start, mut at) = (0_usize, 0, 0);
    while at < bytes.len() {
        let (before, rest) = (&bytes[..at], &bytes[at..]);
        match bytes[at] {
            b'(' if depth == 0 && begins_arguments(before, rest) => break,
            b' ' if depth == 0 && rest.starts_with(b" [clone") => break,
            // `operator new`, `operator bool`.
            b' ' if depth == 0 && !is_operator(before) => start = at + 1,
            byte if is_symbol(byte) && is_operator(before) => {
                at += rest.iter().take_while(|byte| is_symbol(**byte)).count();
                continue;
            }
            // The arrow of a return type.
            b'>' if before.ends_with(b"-") => {}
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    // Both ends are next to a character of one byte, or at an end of the text.
    signature.get(start..at).unwrap_or(signature)
}

fn begins_arguments(before: &[u8], rest: &[u8]) -> bool {
    !rest.starts_with(b"(anonymous namespace)") && !before.ends_with(b"decltype") && !is_operator(before)
}

/// Whether the text ends in the keyword `operator`.
fn is_operator(before: &[u8]) -> bool {
    before
        .strip_suffix(b"operator")
        .is_some_and(|outer| outer.last().is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_'))
}

/// Characters of operators that would be taken for brackets or spaces otherwise.
const fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'=' | b'-' | b'[' | b']')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn return_types_and_arguments_are_no_part_of_the_name() {
        for (signature, name) in [
            ("malloc", "malloc"),
            ("leak()", "leak"),
            ("std::vector<float, std::allocator<float> > solver::step<float>(int)", "solver::step<float>"),
            ("void thrust::fill<int*>(int*, int)", "thrust::fill<int*>"),
            ("bool at::cuda::blas::gemm<float>(char, long)", "at::cuda::blas::gemm<float>"),
            (
                "at::native::(anonymous namespace)::fill(at::Tensor&) const",
                "at::native::(anonymous namespace)::fill",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("decltype(auto) app::pick<int>(int)", "app::pick<int>"),
            ("app::Matrix::operator()(int, int) const", "app::Matrix::operator()"),
            ("bool app::operator<(app::Key const&, app::Key const&)", "app::operator<"),
            ("app::Pointer::operator->() const", "app::Pointer::operator->"),
            ("grow [clone .cold]", "grow"),
            ("app::main::{lambda(int)#1}::operator()(int) const", "app::main::{lambda(int)#1}::operator()"),
            (
                "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
                "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            ),
            ("app::call::<fn() -> u8>", "app::call::<fn() -> u8>"),
            ("<module>", "<module>"),
        ] {
            assert_eq!(qualified_name(signature), name);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_name_within_it(signature in "[a-z:<>(){}é \\[\\]-]{0,40}") {
            prop_assert!(signature.contains(qualified_name(&signature)));
        }
    }
}
