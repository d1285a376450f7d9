//! The files of the page, which are in the program.

use millstream_http::pages::Page;

/// Scripts and styles come from the server only, and none is in the page itself.
macro_rules! policy {
    ($frames:literal) => {
        concat!(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; ",
            "base-uri 'none'; form-action 'none'; frame-ancestors ",
            $frames
        )
    };
}

/// No other page may show this one in a frame, or each may.
const POLICY: &str = policy!("'none'");
const POLICY_FRAMED: &str = policy!("*");

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, media type and contents of each file.
static FILES: [(&str, &str, &str); 11] = [
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", STYLE, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/sections.js", SCRIPT, include_str!("page/sections.js")),
    ("/sections.css", STYLE, include_str!("page/sections.css")),
    ("/graph.js", SCRIPT, include_str!("page/graph.js")),
    ("/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/notes.js", SCRIPT, include_str!("page/notes.js")),
    ("/icon.svg", SVG, include_str!("page/icon.svg")),
    (
        "/uplot.js",
        SCRIPT,
        include_str!("page/uplot/uPlot.iife.min.js"),
    ),
    (
        "/uplot.css",
        STYLE,
        include_str!("page/uplot/uPlot.min.css"),
    ),
];

/// Returns the file of a path.
pub(crate) fn find(path: &str, framed: bool) -> Option<Page> {
    let (_, kind, text) = FILES.iter().find(|file| file.0 == path)?;
    let policy = if framed { POLICY_FRAMED } else { POLICY };
    let page = Page::new(kind, *text).with("content-security-policy", policy);
    Some(page.with("referrer-policy", "no-referrer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_has_nothing_inline() {
        let bytes: usize = FILES.iter().map(|file| file.2.len()).sum();
        assert!(bytes < 150_000, "{bytes}");
        let page = FILES[0].2;
        assert!(!page.contains("style=") && !page.contains("onclick") && !page.contains("<style"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }
}
