//! Allocates blocks of 40001, 40002 ... bytes through closures, trait objects and generic functions, and frees none.

trait Grow {
    fn grow(&self, bytes: usize);
}

struct Vector;

impl Grow for Vector {
    #[inline(never)]
    fn grow(&self, bytes: usize) {
        std::mem::forget(Vec::<u8>::with_capacity(std::hint::black_box(bytes)));
    }
}

#[inline(never)]
fn through<F: Fn(usize)>(function: F, bytes: usize) {
    function(bytes);
    std::hint::black_box(());
}

#[inline(never)]
fn deep(grow: &dyn Grow, depth: u32, bytes: usize) {
    if std::hint::black_box(depth) > 0 {
        deep(grow, depth - 1, bytes);
    } else {
        grow.grow(bytes);
    }
    std::hint::black_box(());
}

fn main() {
    let vector = Vector;
    vector.grow(40001);
    through(|bytes| deep(&vector, 2, bytes), 40002);
    deep(&vector, 20, 40003);
}
