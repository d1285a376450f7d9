//! What a source accepts, and its answers.

use millstream_http::{Body, listen};

use crate::support::{Client, start};

const HERE: &str = "127.0.0.1:0";

#[test]
fn documents_and_elements_are_items_in_order() {
    let flow = start(listen(HERE), None);
    let mut client = flow.client();
    let answer = client.post("{\"a\": 1}");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "{\"items\": 1}\n")
    );
    assert_eq!(client.post("[1, [2], \"x\"]").body, "{\"items\": 3}\n");
    assert_eq!(client.post("[]").body, "{\"items\": 0}\n");
    let lines = client.request("POST /", "Content-Type: application/x-ndjson\r\n", "4\n5\n");
    assert_eq!(lines.body, "{\"items\": 2}\n");
    let json = "Content-Type: application/json; charset=utf-8\r\n";
    assert_eq!(client.request("POST /", json, "6").status, 200);
    assert_eq!(
        flow.stop(),
        ["{\"a\": 1}", "1", "[2]", "\"x\"", "4", "5", "6"]
    );
}

#[test]
fn lines_and_bytes_are_items() {
    let flow = start(listen(HERE).body(Body::Lines).path("/in"), None);
    let any = "Content-Type: text/csv\r\n";
    assert_eq!(
        flow.client()
            .request("POST /in?x=1", any, "to\r\nbe")
            .status,
        200
    );
    assert_eq!(flow.stop(), ["to", "be"]);
    let flow = start(listen(HERE).body(Body::Bytes), None);
    assert_eq!(flow.client().post("a\nb").status, 200);
    assert_eq!(flow.stop(), ["a\nb"]);
}

#[test]
fn each_refusal_has_its_status_and_one_line() {
    let flow = start(listen(HERE).path("/in").token("secret"), None);
    let token = "Authorization: bearer secret\r\n";
    let mut client = flow.client();
    let mut refused = |line: &str, header: &str, body: &str| {
        let answer = client.request(line, header, body);
        assert!(
            answer.body.ends_with('\n') && answer.body.lines().count() == 1,
            "{answer:?}"
        );
        (
            answer.status,
            answer.body.trim_end().to_owned(),
            answer.header,
        )
    };
    let (status, _, header) = refused("POST /in", "", "1");
    assert_eq!(status, 401);
    assert!(header.contains("www-authenticate: bearer"), "{header}");
    for wrong in [
        "Bearer wrong",
        "Bearer ",
        "Bearer secret2",
        "Basic secret",
        "secret",
        "Bearer s\u{e9}cret",
    ] {
        let header = format!("Authorization: {wrong}\r\n");
        let (status, ..) = refused("POST /in", &header, "1");
        assert!([401, 403].contains(&status), "{wrong}: {status}");
    }
    assert_eq!(
        refused("POST /in", "Authorization: Bearer wrong\r\n", "1").0,
        403
    );
    let (status, line, _) = refused("POST /other", token, "1");
    assert_eq!((status, line.as_str()), (404, "no such path: /other"));
    let (status, line, header) = refused("GET /in", token, "");
    assert_eq!(
        (status, line.as_str()),
        (405, "the method is POST, not GET")
    );
    assert!(header.contains("allow: post"), "{header}");
    for kind in ["Content-Type: text/plain\r\n", "Content-Encoding: br\r\n"] {
        let header = format!("{token}{kind}");
        assert_eq!(refused("POST /in", &header, "1").0, 415);
    }
    let (status, line, _) = refused("POST /in", token, "{\"a\": }");
    assert_eq!(status, 400);
    assert_eq!(
        line,
        "the body is not JSON: expected value at line 1 column 7"
    );
    assert_eq!(client.request("POST /in", token, "1").status, 200);
    assert_eq!(flow.stop(), ["1"]);
}

#[test]
fn requests_in_a_row_on_one_connection_are_answered_in_order() {
    let flow = start(listen(HERE), None);
    let mut client = flow.client();
    for n in 0..100 {
        let (path, body) = if n % 2 == 0 {
            ("/", n.to_string())
        } else {
            ("/no", String::new())
        };
        client.send(&format!("POST {path}"), "", &body);
    }
    for n in 0..100 {
        let status = client.read().unwrap().status;
        assert_eq!(status, if n % 2 == 0 { 200 } else { 404 });
    }
    let expected: Vec<String> = (0..100).step_by(2).map(|n: i32| n.to_string()).collect();
    assert_eq!(flow.stop(), expected);
}

#[test]
fn a_source_ends_after_its_requests() {
    let flow = start(listen(HERE).requests(2), None);
    let mut client = flow.client();
    assert_eq!(client.post("[1, 2]").status, 200);
    assert_eq!(client.post("[]").status, 200);
    assert_eq!(client.post("3").status, 200);
    assert_eq!(flow.end(), ["1", "2", "3"]);
}

#[test]
fn a_chunked_body_and_one_after_a_question_are_read() {
    let flow = start(listen(HERE), None);
    let mut client = flow.client();
    client.write("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n3\r\n, 2\r\n1\r\n]\r\n0\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 200);
    client.write("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert_eq!(client.read().unwrap().status, 100);
    client.write("3");
    assert_eq!(client.read().unwrap().status, 200);
    assert_eq!(flow.stop(), ["1", "2", "3"]);
}

#[test]
fn a_unix_socket_is_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = format!("unix:{}", path.display());
    let flow = start(listen(&address), None);
    assert_eq!(flow.address, address);
    assert_eq!(Client::new(&address).post("1").status, 200);
    assert_eq!(flow.stop(), ["1"]);
    assert!(!path.exists());
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let first = start(listen(HERE), None);
    let flow = millstream_flow::Flow::new("second");
    let out = millstream_flow::testing::Collected::<String>::new();
    let source =
        millstream_flow::codec::decode(listen(&first.address), millstream_flow::codec::text);
    flow.source("in", source).sink("out", out.sink());
    let error = flow.run(millstream_flow::Options::default()).unwrap_err();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text += &cause.to_string();
        source = cause.source();
    }
    assert!(
        text.contains(&first.address) && text.contains("in use"),
        "{text}"
    );
    assert!(first.stop().is_empty());
}

#[test]
fn pages_are_refused_unless_their_origin_is_accepted() {
    let page = "Origin: https://shop.example\r\n";
    let flow = start(listen(HERE).body(Body::Bytes), None);
    let answer = flow.client().request("POST /", page, "1");
    let line = "pages of the origin https://shop.example are not accepted\n";
    assert_eq!((answer.status, answer.body.as_str()), (403, line));
    assert!(!answer.header.contains("access-control"));
    assert_eq!(flow.client().request("OPTIONS /", page, "").status, 403);
    assert_eq!(flow.client().request("OPTIONS /", "", "").status, 405);
    assert!(flow.stop().is_empty());

    let flow = start(
        listen(HERE).token("secret").origin("https://shop.example"),
        None,
    );
    let asked = flow.client().request("OPTIONS /", page, "");
    assert_eq!(asked.status, 204);
    assert!(
        asked
            .header
            .contains("access-control-allow-methods: post\r\n")
    );
    let allowed = "access-control-allow-origin: https://shop.example\r\n";
    assert!(asked.header.contains(allowed), "{}", asked.header);
    let refused = flow.client().request("POST /", page, "1");
    assert_eq!(refused.status, 401);
    assert!(refused.header.contains(allowed), "the page reads why");
    let header = format!("{page}Authorization: Bearer secret\r\n");
    assert_eq!(flow.client().request("POST /", &header, "1").status, 200);
    assert_eq!(flow.stop(), ["1"]);
}

#[test]
fn escapes_in_the_path_are_decoded() {
    let flow = start(listen(HERE).path("/a b/c%2Fd"), None);
    for path in ["/a%20b/c%2Fd", "/%61%20b/c%2fd?x=%zz"] {
        let answer = flow.client().request(&format!("POST {path}"), "", "1");
        assert_eq!(answer.status, 200, "{path}");
    }
    assert_eq!(
        flow.client().request("POST /a%20b/c/d", "", "1").status,
        404
    );
    let answer = flow.client().request("POST /a%20b/%fg", "", "1");
    let line = "the path: \"%fg\" is no escape: that is % and two hexadecimal digits\n";
    assert_eq!((answer.status, answer.body.as_str()), (400, line));
    assert_eq!(flow.stop(), ["1", "1"]);
}
