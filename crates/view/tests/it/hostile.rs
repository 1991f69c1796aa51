//! Names that would be something else than names if they could.

use floodmark_view::Layout;
use floodmark_view::plot::{
    Figure, Layer, Note, Phase, Point, Props, Series, Stack, TimeAxis, arrange, html, label, pdf, svg,
    terminal,
};
use resvg::usvg::roxmltree::Document;

use crate::figures::{alone, saw};

pub(crate) const NAMES: [&str; 8] = [
    "</text></svg><script>alert(1)</script>",
    "\" onload=\"alert(1)",
    "]]><!-- &amp; &#0; &undefined;",
    "\u{1b}[31mred\u{0}\u{ffff}\u{202e}drawkcab",
    "</script><script>alert(1)</script>",
    "(\\) endstream endobj",
    "漢字 🦀 \u{10ffff}",
    "a name that goes on and on and on and on and on and on and on and on and on and on and on and on and on",
];

#[test]
fn figures_at_the_ends_of_their_range_are_drawn() {
    let times = [i64::MIN, -1, 0, i64::MAX];
    for from_ns in times {
        for to_ns in times.into_iter().filter(|to_ns| *to_ns >= from_ns) {
            for bytes in [0, 1, u64::MAX] {
                let point = |time_ns| Point { time_ns, bytes };
                let points = vec![point(from_ns), point(to_ns)];
                let series = Series { name: "edge".into(), points, end_ns: to_ns, ..Series::default() };
                let layers = vec![Layer { name: "layer".into(), values: vec![bytes; 2] }; 2];
                let stack = Some(Stack { times_ns: vec![from_ns, to_ns], layers, end_ns: to_ns });
                let notes = vec![Note { time_ns: to_ns, series: 0, text: "note".into() }];
                for time in [TimeAxis::Elapsed, TimeAxis::Clock] {
                    let (series, notes, stack) = (vec![series.clone()], notes.clone(), stack.clone());
                    let figure = Figure { series, notes, stack, time, ..Figure::default() };
                    let text = svg::svg(&arrange(&figure, &Props::default()));
                    assert!(Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf"));
                    assert!(!terminal::text(&figure, &Layout::default()).is_empty());
                }
            }
        }
    }
}

fn figure(name: &str) -> Figure {
    let name = label(name);
    let mut figure = alone();
    figure.title.clone_from(&name);
    figure.measure.clone_from(&name);
    figure.series.push(saw(&name, 3));
    figure.phases = vec![Phase { name: name.clone(), from_ns: 0, to_ns: 3_000_000_000 }];
    figure.notes = vec![Note { time_ns: 2_000_000_000, series: 0, text: name.clone() }];
    figure.remarks = vec![name.clone()];
    let layers = vec![Layer { name, values: vec![1, 2] }];
    figure.stack = Some(Stack { times_ns: vec![0, 5], layers, end_ns: 10 });
    figure
}

#[test]
fn documents_stay_well_formed_whatever_names_say() {
    for name in NAMES {
        let scene = arrange(&figure(name), &Props::default());
        let text = svg::svg(&scene);
        let document = Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let element = |node: &resvg::usvg::roxmltree::Node<'_, '_>| node.is_element();
        for node in document.descendants().filter(element) {
            let tag = node.tag_name().name();
            assert!(["svg", "title", "rect", "path", "circle", "text"].contains(&tag), "{name}: <{tag}>");
            assert!(node.attributes().all(|attribute| !attribute.name().starts_with("on")), "{name}");
        }
        let page = html::html(&scene, figure(name).time);
        assert_eq!(page.matches("<script").count(), 2, "{name}");
        assert_eq!(page.matches("</script").count(), 2, "{name}");
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{name}");
        // Behind that is JSON, in which quotes are escaped in another way.
        let markup = page.split("<script").next().unwrap();
        assert!(!markup.contains("\" onload"), "{name}");
        let bytes = pdf::pdf(&scene);
        assert_eq!(bytes.windows(6).filter(|w| w == b"endobj").count(), 10, "{name}");
    }
}
