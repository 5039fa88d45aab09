//! The picture: nodes, what is wrong at the chosen one, its disks.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

use super::ask_nodes::{ClusterView, NodeView};
use super::finding::{Finding, Gravity};
use super::table::{
    Column, DISK_COLUMNS, NODE_COLUMNS, NodeOrder, WIDE, disk_rows, node_row, sorted,
};

/// What the keys do, and what the columns mean.
const HELP: &str = "\
q        leave
up down  choose a node (also j k, tab)
s        sort by something else
PgUp PgDn  move through the disks
?        this page
!        trouble    ~  slow
SLOWEST  mean time of the slowest class
QUEUE    transfers that wait, on average
WAIT     mean wait for their turn
SERVICE  mean time from turn to end
P99      99 in 100, since the start
RUN      bytes in sequence in one file";

/// What is shown, and how.
#[derive(Debug)]
pub struct TopScreen {
    /// The last sample; none before the first.
    pub view: Option<ClusterView>,
    /// Time between samples.
    pub interval: Duration,
    /// Whether colours may be used.
    pub color: bool,
    /// What nodes are sorted by.
    pub order: NodeOrder,
    /// Address of the chosen node: it stays chosen when the order changes.
    pub chosen: Option<String>,
    /// Rows of disks that are left out above.
    pub skipped: usize,
    /// Whether the help is shown.
    pub help: bool,
}

impl TopScreen {
    /// Nothing seen yet.
    pub fn new(interval: Duration, color: bool) -> Self {
        Self {
            view: None,
            interval,
            color,
            order: NodeOrder::default(),
            chosen: None,
            skipped: 0,
            help: false,
        }
    }

    /// The nodes in order, and which of them is chosen: the first where none is.
    fn nodes(&self) -> (Vec<&NodeView>, usize) {
        let view = self.view.as_ref();
        let nodes = view
            .map(|view| sorted(view, self.order))
            .unwrap_or_default();
        let chosen = nodes
            .iter()
            .position(|node| Some(&node.address) == self.chosen.as_ref());
        (nodes, chosen.unwrap_or(0))
    }

    /// Chooses the next node, or the one before.
    pub fn choose(&mut self, forward: bool) {
        let (nodes, at) = self.nodes();
        if nodes.is_empty() {
            return;
        }
        let step = if forward { 1 } else { nodes.len() - 1 };
        self.chosen = Some(nodes[(at + step) % nodes.len()].address.clone());
        self.skipped = 0;
    }

    fn style(&self, gravity: Gravity) -> Style {
        // The mark in the first column says the same without colours.
        match gravity {
            Gravity::Trouble if self.color => Style::new().fg(Color::Red),
            Gravity::Slow if self.color => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        }
    }

    /// Draws all of it.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(area);
        let bar = Style::new().add_modifier(Modifier::REVERSED);
        frame.render_widget(Paragraph::new(self.headline()).style(bar), head);
        let keys = "q quit  s sort  arrows node  ? help";
        frame.render_widget(Paragraph::new(keys), foot);
        if self.help {
            frame.render_widget(Paragraph::new(HELP), body);
        } else if self
            .view
            .as_ref()
            .is_some_and(|view| !view.nodes.is_empty())
        {
            self.draw_nodes(frame, body);
        } else {
            let problems = self.view.as_ref().map(|view| view.problems.join("\n"));
            let text = match problems {
                None => "asking the nodes ...".to_owned(),
                Some(none) if none.is_empty() => "the NameNode knows no nodes".to_owned(),
                Some(problems) => problems,
            };
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), body);
        }
    }

    fn headline(&self) -> String {
        let Some(view) = &self.view else {
            return "hayloft top".to_owned();
        };
        let silent = match view.silent() {
            0 => String::new(),
            n => format!(", {n} silent"),
        };
        let (nodes, order) = (view.nodes.len(), self.order.name());
        let problem = view.problems.first().map(|p| format!("  ! {p}"));
        let every = self.interval.as_secs();
        format!(
            "hayloft top  {nodes} nodes{silent}  by {order}{}  every {every} s",
            problem.unwrap_or_default()
        )
    }

    fn draw_nodes(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let (nodes, at) = self.nodes();
        let listed = u16::try_from(nodes.len()).unwrap_or(u16::MAX);
        let half = (area.height / 2).max(3);
        // At least so many lines: where words are wrapped, there may be one more.
        let wide = usize::from(area.width.max(1));
        let lines = |found: &Finding| (found.text.chars().count() + 2).div_ceil(wide);
        let findings = nodes
            .get(at)
            .map(|node| node.findings.iter().map(lines).sum());
        let findings = u16::try_from(findings.unwrap_or(0_usize)).unwrap_or(u16::MAX);
        let [top, why, below] = Layout::vertical([
            Constraint::Length(listed.saturating_add(1).min(half)),
            Constraint::Length(1 + findings.min((area.height / 4).max(1))),
            Constraint::Fill(1),
        ])
        .areas(area);
        let rows = nodes
            .iter()
            .map(|node| (node.gravity(), node_row(node).to_vec()));
        let table = self.table(&NODE_COLUMNS, rows.collect(), area.width);
        let mut state = TableState::new().with_selected(Some(at));
        frame.render_stateful_widget(table, top, &mut state);
        let Some(node) = nodes.get(at) else { return };
        self.draw_findings(frame, why, node);
        let Ok((_, rates)) = &node.answer else { return };
        let rows = disk_rows(rates, &node.findings);
        let room = usize::from(below.height.saturating_sub(1));
        let skipped = self.skipped.min(rows.len().saturating_sub(room));
        let shown = rows.into_iter().skip(skipped).map(|(gravity, row)| {
            let mut row = row.to_vec();
            row[0] = format!("{}{}", gravity.mark(), row[0]);
            (gravity, row)
        });
        let table = self.table(&DISK_COLUMNS, shown.collect(), area.width);
        frame.render_widget(table, below);
        self.skipped = skipped;
    }

    /// The chosen node, and what was found there.
    fn draw_findings(&self, frame: &mut Frame<'_>, area: Rect, node: &NodeView) {
        let width = usize::from(area.width);
        let bar = Style::new().add_modifier(Modifier::REVERSED);
        let doing = match &node.answer {
            Ok((counters, _)) => {
                let (readers, writers) = (counters.reading, counters.writing);
                format!("{}  {readers} readers, {writers} writers", node.address)
            }
            Err(_) => node.address.clone(),
        };
        let mut lines = vec![Line::styled(format!("{doing:width$}"), bar)];
        for found in &node.findings {
            let text = format!("{} {}", found.gravity.mark(), found.text);
            lines.push(Line::styled(text, self.style(found.gravity)));
        }
        let text = Paragraph::new(lines).wrap(Wrap { trim: false });
        frame.render_widget(text, area);
    }

    /// Rows under their headings; a narrow screen has fewer columns.
    fn table(
        &self,
        columns: &[Column],
        rows: Vec<(Gravity, Vec<String>)>,
        width: u16,
    ) -> Table<'static> {
        let wide = width >= WIDE;
        let shown = |at: &usize| wide || columns.get(*at).is_some_and(|column| column.2);
        let kept: Vec<usize> = (0..columns.len()).filter(shown).collect();
        let widths = kept.iter().map(|at| match columns[*at].1 {
            0 => Constraint::Fill(1),
            width => Constraint::Length(width),
        });
        let heads = kept.iter().map(|at| columns[*at].0);
        let rows = rows.into_iter().map(|(gravity, row)| {
            let cells: Vec<String> = kept.iter().map(|at| row[*at].clone()).collect();
            Row::new(cells).style(self.style(gravity))
        });
        let heads = Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
        let chosen = Style::new().add_modifier(Modifier::REVERSED);
        Table::new(rows, widths)
            .header(heads)
            .row_highlight_style(chosen)
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::table::tests::view;
    use super::*;

    fn screen() -> TopScreen {
        let mut screen = TopScreen::new(Duration::from_secs(1), true);
        screen.view = Some(view());
        screen
    }

    fn picture(screen: &mut TopScreen, width: u16, height: u16) -> String {
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        terminal.backend().to_string()
    }

    fn has(picture: &str, parts: &[&str]) {
        for part in parts {
            assert!(picture.contains(part), "{part:?} is missing in\n{picture}");
        }
    }

    #[test]
    fn all_of_it_fits_80_columns() {
        let picture = picture(&mut screen(), 80, 24);
        has(
            &picture,
            &[
                "hayloft top  3 nodes, 1 silent  by slowest  every 1 s",
                "! 10.0.0.1:9864",
                "In Service 931 GiB  2.6 TiB  -        5.0 MiB  80 ms",
                "! 10.0.0.2:9864           no answer",
                "10.0.0.1:9864  2 readers, 3 writers",
                "! The volume /data/2 has failed: Input/output error.",
                "~ On the disk sda, a client-write takes 80.0 ms on average: the disk itself is",
                "~sda",
                "client-write 2.0 MiB  10",
                " sdb",
                "q quit  s sort",
            ],
        );
    }

    #[test]
    fn a_small_screen_has_what_matters() {
        let picture = picture(&mut screen(), 40, 15);
        has(
            &picture,
            &[
                "! 10.0.0.1:9864",
                "80 ms",
                "! The volume /data/2 has failed:",
                "~sda",
                "q quit",
            ],
        );
        for (width, height) in [(1, 1), (10, 3), (20, 5), (300, 100)] {
            self::picture(&mut screen(), width, height);
        }
    }

    #[test]
    fn the_chosen_node_stays_chosen() {
        let mut screen = screen();
        screen.choose(true);
        assert_eq!(screen.chosen.as_deref(), Some("10.0.0.2:9864"));
        screen.order = NodeOrder::Name;
        has(
            &picture(&mut screen, 80, 24),
            &["! does not answer: Connection refused"],
        );
        screen.choose(false);
        assert_eq!(screen.chosen.as_deref(), Some("10.0.0.3:9864"));
        screen.choose(false);
        assert_eq!(
            screen.chosen.as_deref(),
            Some("10.0.0.1:9864"),
            "around the end"
        );
        screen.view.as_mut().expect("seen").nodes.truncate(1);
        screen.skipped = 1000;
        has(&picture(&mut screen, 80, 24), &["10.0.0.3:9864", "sdb"]);
    }

    #[test]
    fn help_and_an_empty_cluster_are_drawn() {
        let mut screen = screen();
        screen.help = true;
        has(
            &picture(&mut screen, 80, 24),
            &["bytes in sequence in one file"],
        );
        screen.help = false;
        screen.view = Some(ClusterView {
            problems: vec!["NameNode nn:9870: Connection refused".into()],
            ..ClusterView::default()
        });
        has(
            &picture(&mut screen, 80, 24),
            &["NameNode nn:9870: Connection refused"],
        );
        screen.view = None;
        screen.choose(true);
        has(&picture(&mut screen, 40, 15), &["asking the nodes"]);
    }

    #[test]
    fn without_colours_nothing_is_coloured() {
        let mut screen = screen();
        screen.color = false;
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let cells = terminal.backend().buffer().content();
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset));
    }
}
