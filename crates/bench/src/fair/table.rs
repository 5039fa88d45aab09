//! Tables of a page, in Markdown.

/// A table under way.
#[derive(Clone, Debug)]
pub struct MarkdownTable {
    text: String,
    rows: usize,
}

impl MarkdownTable {
    /// With these headings.
    #[must_use]
    pub fn new<S: AsRef<str>>(headings: &[S]) -> Self {
        let headings: Vec<&str> = headings.iter().map(AsRef::as_ref).collect();
        let bars = "---|".repeat(headings.len());
        Self {
            text: format!("| {} |\n|{bars}\n", headings.join(" | ")),
            rows: 0,
        }
    }

    /// Adds a row.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.text += &format!("| {} |\n", cells.join(" | "));
        self.rows += 1;
    }

    /// The text; nothing when there is no row.
    #[must_use]
    pub fn text(self) -> Option<String> {
        (self.rows > 0).then_some(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_rows_is_none() {
        let mut table = MarkdownTable::new(&["a", "b"]);
        assert_eq!(table.clone().text(), None);
        table.row(&["1".to_owned(), "2".to_owned()]);
        assert_eq!(
            table.text().expect("a row"),
            "| a | b |\n|---|---|\n| 1 | 2 |\n"
        );
    }
}
