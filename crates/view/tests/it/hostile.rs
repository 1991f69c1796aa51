//! Names that would be something else than names if they could.

use floodmark_view::plot::{Figure, Layer, Note, Phase, Props, Stack, arrange, html, label, pdf, svg};
use resvg::usvg::roxmltree::Document;

use crate::figures::{alone, saw};

const NAMES: [&str; 8] = [
    "</text></svg><script>alert(1)</script>",
    "\" onload=\"alert(1)",
    "]]><!-- &amp; &#0; &undefined;",
    "\u{1b}[31mred\u{0}\u{ffff}\u{202e}drawkcab",
    "</script><script>alert(1)</script>",
    "(\\) endstream endobj",
    "漢字 🦀 \u{10ffff}",
    "a name that goes on and on and on and on and on and on and on and on and on and on and on and on and on",
];

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
