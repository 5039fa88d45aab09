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
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug)]
pub struct ShownTable {
    /// Its title.
    pub title: Text,
    /// What has to be said before it.
    pub about: Text,
    /// The one part that it shows; empty: all.
    pub part: Text,
    /// What makes a row.
    pub by: &'static [Axis],
    /// Its columns.
    pub columns: &'static [PageColumn],
}

/// A column with what names the row.
pub const fn name(heading: Text, axis: Axis) -> PageColumn {
    (heading, Cell::Of(axis))
}

/// A column of medians with their spread.
pub const fn spread(heading: Text, what: Text, of: Text) -> PageColumn {
    (heading, Cell::Spread(what, of))
}

/// A column of medians.
pub const fn median(heading: Text, what: Text, of: Text, unit: FigureUnit) -> PageColumn {
    (heading, Cell::Median(what, of, unit))
}

/// A column of medians of shares.
pub const fn percent(heading: Text, what: Text, of: Text) -> PageColumn {
    median(heading, what, of, FigureUnit::Percent)
}

/// A column of medians of counts.
pub const fn whole(heading: Text, what: Text, of: Text) -> PageColumn {
    median(heading, what, of, FigureUnit::Plain(0))
}

/// A column of sums over the rounds.
pub const fn sum(heading: Text, what: Text, of: Text) -> PageColumn {
    (heading, Cell::Sum(what, of))
}

/// A column of ratios to the better stock setting.
pub const fn lead(heading: Text, what: Text, of: Text) -> PageColumn {
    (heading, Cell::Lead(what, of))
}

/// A column of what was lost of all.
pub const fn lost(heading: Text, what: Text, of: Text, all: Text) -> PageColumn {
    (heading, Cell::Lost(what, of, all))
}

/// A column of shares of a base.
pub const fn share(heading: Text, what: Text, of: Text, base: Base) -> PageColumn {
    (heading, Cell::Share(what, of, base))
}

/// A column of what limited it.
pub const fn limit(heading: Text, what: Text) -> PageColumn {
    (heading, Cell::Limit(what))
}

/// A table of all parts, without a title.
pub const fn table(by: &'static [Axis], columns: &'static [PageColumn]) -> ShownTable {
    ShownTable {
        title: "",
        about: "",
        part: "",
        by,
        columns,
    }
}

impl ShownTable {
    /// With a title.
    #[must_use]
    pub const fn titled(self, title: Text) -> Self {
        Self { title, ..self }
    }

    /// With what has to be said before it.
    #[must_use]
    pub const fn saying(self, about: Text) -> Self {
        Self { about, ..self }
    }

    /// Of one part.
    #[must_use]
    pub const fn of(self, part: Text) -> Self {
        Self { part, ..self }
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
    /// Tables in order.
    pub tables: &'static [ShownTable],
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
        tables: &[],
        wants: Vec::new,
        plots: &[],
        paper: "",
    };
}
