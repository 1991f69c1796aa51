//! Pictures as they are.

use floodmark_view::Layout;
use floodmark_view::plot::{Figure, Props, Shade, Size, arrange, html, pdf, svg, terminal};
use insta::assert_snapshot;

use crate::figures::{alone, annotated, compared, stacked};

fn sized(width: u32, height: u32) -> Props {
    Props { size: Size { width, height }, ..Props::default() }
}

fn drawn(figure: &Figure, props: &Props) -> String {
    svg::svg(&arrange(figure, props))
}

#[test]
fn pictures_look_as_they_did() {
    assert_snapshot!("alone", drawn(&alone(), &Props::default()));
    assert_snapshot!("compared", drawn(&compared(), &sized(900, 450)));
    assert_snapshot!("stacked", drawn(&stacked(), &sized(600, 300)));
    let dark = Props { shade: Shade::Dark, ..Props::default() };
    assert_snapshot!("annotated_dark", drawn(&annotated(), &dark));
    assert_snapshot!("annotated_small", drawn(&annotated(), &sized(300, 200)));
}

#[test]
fn terminals_get_areas_below_each_other() {
    let layout = Layout { width: 80, ..Layout::default() };
    assert_snapshot!("terminal_alone", terminal::text(&annotated(), &layout));
    assert_snapshot!("terminal_compared", terminal::text(&compared(), &layout));
    for figure in [alone(), annotated(), compared(), stacked()] {
        let text = terminal::text(&figure, &layout);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn the_same_figure_gives_the_same_bytes() {
    for figure in [alone(), annotated(), compared(), stacked()] {
        let scene = || arrange(&figure, &Props::default());
        assert_eq!(svg::svg(&scene()), svg::svg(&scene()));
        assert_eq!(pdf::pdf(&scene()), pdf::pdf(&scene()));
        assert_eq!(html::html(&scene(), figure.time), html::html(&scene(), figure.time));
    }
}

#[test]
fn a_pdf_says_where_its_objects_are() {
    let bytes = pdf::pdf(&arrange(&annotated(), &Props::default()));
    let find =
        |from: usize, what: &[u8]| bytes[from..].windows(what.len()).position(|w| w == what).unwrap() + from;
    let xref = find(0, b"\nxref\n") + 1;
    let table = std::str::from_utf8(&bytes[xref..]).unwrap();
    assert!(table.contains(&format!("startxref\n{xref}\n")));
    let entries: Vec<usize> =
        table.lines().skip(3).map_while(|line| line.strip_suffix(" 00000 n ")?.parse().ok()).collect();
    assert_eq!(entries.len(), 10);
    for (number, offset) in (1..).zip(entries) {
        assert!(bytes[offset..].starts_with(format!("{number} 0 obj\n").as_bytes()), "object {number}");
    }
}

#[test]
fn nothing_to_show_is_a_picture_too() {
    let nothing = Figure { title: "nothing".into(), ..Figure::default() };
    assert!(drawn(&nothing, &Props::default()).contains("nothing"));
    assert_eq!(terminal::text(&nothing, &Layout::default()), "nothing\nthere is nothing to draw\n");
}
