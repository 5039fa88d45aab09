//! What a page shows of an experiment: tables, and what was asked for.

/// Texts of descriptions.
type Text = &'static str;

/// What names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Part of the experiment.
    Part,
    /// Circumstances.
    Row,
    /// Who.
    Peer,
    /// What was done.
    What,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// As it is, with so many decimals.
    Plain(usize),
    /// A share, 0 to 1, as per cent.
    Percent,
    /// Bytes, as MiB.
    Mib,
    /// Bytes, as KiB.
    Kib,
}

/// With what a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A peer in the same row.
    Peer(Text),
    /// A peer in another row.
    Cell(Text, Text),
    /// The same peer in another row.
    Row(Text),
    /// The same peer in the row with the smallest number, as much for each of the row's number.
    Linear,
}

/// A cell of a row. The first text is what was done: empty, that of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// What names the row.
    Of(Axis),
    /// Median, lowest and highest of a figure, with signs.
    Spread(Text, Text),
    /// Its median.
    Median(Text, Text, FigureUnit),
    /// The sum over all rounds.
    Sum(Text, Text),
    /// One sum of another, bold unless it is none: what is lost of what was acknowledged.
    Lost(Text, Text, Text),
    /// The median as a share of another's.
    Share(Text, Text, Base),
    /// The median over that of the better stock setting in the row, bold where it claims something.
    Lead(Text, Text),
    /// What limited it.
    Limit(Text),
}

/// A heading with its cells.
pub type PageColumn = (Text, Cell);

/// A table.
#[derive(Clone, Debug)]
pub struct ShownTable {
    /// Its title.
    pub title: Text,
    /// What has to be said before it.
    pub about: Text,
    /// The one part that it shows; empty: all.
    pub part: Text,
    /// What makes a row.
    pub by: Vec<Axis>,
    /// Its columns.
    pub columns: Vec<PageColumn>,
}

/// Reads the tables of an experiment. `== title = part = axes` begins one, `: text` stands before
/// it, and `heading = cell` is a column: an axis, or a kind with `what/figure`, see [`Cell`].
///
/// # Errors
/// The line that is neither.
pub fn parse(text: Text) -> Result<Vec<ShownTable>, String> {
    let mut tables: Vec<ShownTable> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("no table and no column: {line}");
        match (line.strip_prefix("== "), tables.last_mut()) {
            (Some(head), _) => tables.push(begun(head).ok_or_else(wrong)?),
            (None, Some(table)) => match line.strip_prefix(": ") {
                Some(about) => table.about = about,
                None => table.columns.push(column(line).ok_or_else(wrong)?),
            },
            _ => return Err(wrong()),
        }
    }
    Ok(tables)
}

fn begun(head: Text) -> Option<ShownTable> {
    let mut parts = head.split('=').map(str::trim);
    Some(ShownTable {
        title: parts.next()?,
        part: parts.next()?,
        by: parts.next()?.split(' ').map(axis).collect::<Option<_>>()?,
        about: "",
        columns: Vec::new(),
    })
}

fn axis(name: Text) -> Option<Axis> {
    let axes = [
        ("part", Axis::Part),
        ("row", Axis::Row),
        ("peer", Axis::Peer),
        ("what", Axis::What),
    ];
    axes.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, axis)| *axis)
}

fn column(line: Text) -> Option<PageColumn> {
    let (heading, cell) = line.split_once(" = ")?;
    if let Some(axis) = axis(cell) {
        return Some((heading, Cell::Of(axis)));
    }
    let (kind, rest) = cell.split_once(' ')?;
    let (rest, of) = match rest.split_once(" of ") {
        Some((rest, of)) => (rest, Some(of)),
        None => (rest, None),
    };
    let (what, figure) = rest.split_once('/')?;
    let median = |unit| Cell::Median(what, figure, unit);
    let cell = match kind {
        "spread" => Cell::Spread(what, figure),
        "sum" => Cell::Sum(what, figure),
        "lead" => Cell::Lead(what, figure),
        "limit" => Cell::Limit(what),
        "whole" => median(FigureUnit::Plain(0)),
        "tenths" => median(FigureUnit::Plain(1)),
        "percent" => median(FigureUnit::Percent),
        "mib" => median(FigureUnit::Mib),
        "kib" => median(FigureUnit::Kib),
        "lost" => {
            let (lost, all) = figure.split_once('/')?;
            Cell::Lost(what, lost, all)
        }
        "share" => Cell::Share(what, figure, base(of?)?),
        _ => return None,
    };
    Some((heading, cell))
}

fn base(of: Text) -> Option<Base> {
    match of.split_once(' ') {
        Some(("peer", peer)) => Some(Base::Peer(peer)),
        Some(("row", row)) => Some(Base::Row(row)),
        Some(("cell", cell)) => cell
            .split_once('/')
            .map(|(row, peer)| Base::Cell(row, peer)),
        _ => (of == "linear").then_some(Base::Linear),
    }
}

/// A figure of a peer: part, row, peer (`stock`: the better setting), what, figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick(pub String, pub String, pub String, pub String, pub Text);

/// These five.
pub fn pick(part: &str, row: &str, peer: &str, what: &str, figure: Text) -> Pick {
    let [part, row, peer, what] = [part, row, peer, what].map(str::to_owned);
    Pick(part, row, peer, what, figure)
}

/// At least or at most so much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At least.
    Least(f64),
    /// At most.
    Most(f64),
}

/// A ratio that is asked for.
#[derive(Clone, Debug)]
pub struct WantedRatio {
    /// Of what, in words.
    pub text: String,
    /// The figure.
    pub of: Pick,
    /// What it is divided by.
    pub over: Pick,
    /// What is asked.
    pub bar: Bar,
}

/// A plot: a line a peer over the rows, which are numbers.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// Name of its file, without an ending.
    pub name: Text,
    /// What was done, and the figure.
    pub of: (Text, Text),
}

/// Everything that a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Title.
    pub title: Text,
    /// Tables in order, see [`parse`].
    pub tables: Text,
    /// What was asked for.
    pub wants: fn() -> Vec<WantedRatio>,
    /// Plots.
    pub plots: &'static [Plot],
    /// What the paper says, Markdown.
    pub paper: Text,
}

impl Shown {
    /// Nothing but a title.
    pub const NOTHING: Self = Self {
        title: "",
        tables: "",
        wants: Vec::new,
        plots: &[],
        paper: "",
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_axes_columns_and_bases() {
        let text = "== T = p = row peer\n: About.\nMB/s = spread read other/mbs\n\
                    of = share write/mbs of cell 1/file system\nlost = lost /lost/all\n";
        let tables = parse(text).expect("it is right");
        let [table] = &tables[..] else {
            panic!("one: {tables:?}");
        };
        assert_eq!((table.title, table.part, table.about), ("T", "p", "About."));
        assert_eq!(table.by, [Axis::Row, Axis::Peer]);
        assert_eq!(
            table.columns[0],
            ("MB/s", Cell::Spread("read other", "mbs"))
        );
        let share = Cell::Share("write", "mbs", Base::Cell("1", "file system"));
        assert_eq!(table.columns[1], ("of", share));
        assert_eq!(table.columns[2], ("lost", Cell::Lost("", "lost", "all")));
    }

    #[test]
    fn a_line_that_is_neither_is_named() {
        for wrong in [
            "MB/s = spread /mbs",
            "== T = p = rows",
            "== T =  = row\nx = speed /mbs",
        ] {
            let error = parse(wrong).expect_err(wrong);
            let line = wrong.lines().last().unwrap_or_default();
            assert!(error.ends_with(line), "{error}");
        }
    }
}
