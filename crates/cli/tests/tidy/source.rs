//! The tokens of a Rust source, without comments, literals and what only tests compile.

/// A word, `::`, or one other character.
pub type Token<'a> = &'a str;

/// The tokens of what a build without tests compiles.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    without_tests(&all_tokens(text))
}

fn all_tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let len = skipped(rest);
        if len > 0 {
            at += len;
            continue;
        }
        let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let len = match word {
            0 if rest.starts_with("::") => 2,
            0 => rest.chars().next().map_or(1, char::len_utf8),
            _ => word,
        };
        found.push(&rest[..len]);
        at += len;
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// How many bytes at the start of `rest` are space, a comment or a literal in quotes.
fn skipped(rest: &str) -> usize {
    let first = rest.chars().next().unwrap_or(' ');
    if first.is_whitespace() {
        return first.len_utf8();
    }
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    match first {
        '"' => quoted(rest, '"'),
        '\'' => character(rest),
        'b' if rest.starts_with("b\"") => 1 + quoted(&rest[1..], '"'),
        'b' if rest.starts_with("b'") => 1 + quoted(&rest[1..], '\''),
        'r' | 'b' => raw(rest),
        _ => 0,
    }
}

/// The length of a literal between quotes, which a backslash escapes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character in quotes, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let (inner, then) = (chars.next(), chars.next());
    match (inner, then) {
        (Some((_, '\\')), _) => quoted(rest, '\''),
        (_, Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The length of a raw string such as `r#"..."#`; 0 of anything else.
fn raw(rest: &str) -> usize {
    let prefix = if rest.starts_with("br") { 2 } else { 1 };
    if !rest[prefix - 1..].starts_with('r') {
        return 0;
    }
    let hashes = rest[prefix..].bytes().take_while(|b| *b == b'#').count();
    let inner = prefix + hashes;
    if !rest[inner..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = &rest[inner + 1..];
    body.find(&end)
        .map_or(rest.len(), |at| inner + 1 + at + end.len())
}

/// Leaves out each item behind `#[cfg(test)]`, and behind `all(test, ...)`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let rest = &tokens[at..];
        let for_tests = rest.starts_with(&["#", "[", "cfg", "(", "test", ")"])
            || rest.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"]);
        if for_tests {
            at += item(rest);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The length of an item with the attributes before it: to its `;`, `,` or closing brace.
fn item(tokens: &[Token<'_>]) -> usize {
    let mut at = 0;
    while tokens.get(at) == Some(&"#") {
        at += 1 + group(&tokens[at + 1..]);
    }
    while at < tokens.len() {
        match tokens[at] {
            ";" | "," => return at + 1,
            "{" => return at + group(&tokens[at..]),
            // The item is the last of a list.
            "}" | ")" | "]" => return at,
            "(" | "[" => at += group(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

/// The length of a group in brackets of any kind, with the brackets.
pub fn group(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

#[test]
fn comments_literals_and_tests_are_left_out() {
    let text = "use a::b; // c::d\n/* e */ fn f<'g>() { \"h::i\"; r#\"j\"\"#; '\\''; 'k' }
        #[cfg(test)]\n#[path = \"x.rs\"]\nmod l;\n#[cfg(test)] fn m() { n::o() }\nmod p;";
    let expected = "use a :: b ; fn f < g > ( ) { ; ; ; } mod p ;";
    assert_eq!(tokens(text).join(" "), expected);
}
