//! Plain tables: columns are separated by two blanks and have no borders, so that people and `cut` can read them.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// A column's heading and alignment.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    Left(&'static str),
    Right(&'static str),
}

impl Column {
    pub fn heading(self) -> &'static str {
        match self {
            Self::Left(heading) | Self::Right(heading) => heading,
        }
    }
}

/// Renders rows below headings. Every row has as many cells as there are columns.
pub fn render(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| match column {
        Column::Left(heading) => Cell::new(heading),
        Column::Right(heading) => Cell::new(heading).set_alignment(CellAlignment::Right),
    }));
    table.add_rows(rows);
    for (index, column) in columns.iter().enumerate() {
        let column_of_table = table.column_mut(index).expect("the header has this many columns");
        column_of_table.set_padding((0, 2));
        if matches!(column, Column::Right(_)) {
            column_of_table.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// Renders a table within a width: columns are left out, in the order of `dispensable`, until every line fits. A pipe
/// has no width and gets all columns.
pub fn fit(columns: &[Column], rows: &[Vec<String>], width: Option<usize>, dispensable: &[&str]) -> String {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let mut dispensable = dispensable.iter();
    loop {
        let headings: Vec<Column> = kept.iter().map(|index| columns[*index]).collect();
        let text = render(&headings, rows.iter().map(|row| kept.iter().map(|index| row[*index].clone()).collect()));
        let fits = width.is_none_or(|width| fits(&text, width));
        match dispensable.next() {
            Some(heading) if !fits => kept.retain(|index| columns[*index].heading() != *heading),
            _ => return text,
        }
    }
}

/// Whether no line is wider than this.
pub fn fits(text: &str, width: usize) -> bool {
    text.lines().all(|line| line.chars().count() <= width)
}

/// One record of comma-separated values (RFC 4180). An apostrophe stands before a text that a spreadsheet would take for a formula,
/// because names and labels may come from other users.
pub fn csv_record(cells: impl IntoIterator<Item = String>) -> String {
    let quote = |cell: String| {
        let cell = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell };
        if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
    };
    cells.into_iter().map(quote).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_headings_and_aligned_cells() {
        let rows = [["saxpy", "1.00 ms"], ["sobel", "999 µs"]].map(|row| row.map(str::to_owned).to_vec());
        insta::assert_snapshot!(render(&[Column::Left("KERNEL"), Column::Right("TIME")], rows), @r"
        KERNEL     TIME
        saxpy   1.00 ms
        sobel    999 µs
        ");
        assert_eq!(render(&[Column::Left("KERNEL")], []), "KERNEL\n");
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_a_pipe_all() {
        let columns = [Column::Left("ID"), Column::Left("NAME"), Column::Left("DEVICE")];
        let rows = [vec!["0190".to_owned(), "edges".to_owned(), "emulator".to_owned()]];
        let headings = |width| {
            let text = fit(&columns, &rows, width, &["DEVICE", "NAME"]);
            text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(headings(None), "ID NAME DEVICE");
        assert_eq!(headings(Some(21)), "ID NAME DEVICE");
        assert_eq!(headings(Some(20)), "ID NAME");
        assert_eq!(headings(Some(1)), "ID");
    }

    #[test]
    fn a_cell_that_would_break_a_record_is_quoted() {
        let record = csv_record(["plain", "a,b", "say \"hi\"", "two\nlines", ""].map(str::to_owned));
        assert_eq!(record, "plain,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\r\n");
    }

    #[test]
    fn a_cell_that_a_spreadsheet_would_compute_is_a_text() {
        let record = csv_record(["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "1-1", "a=b"].map(str::to_owned));
        assert_eq!(record, "'=HYPERLINK(1),'+1,'-1,'@x,'\tx,1-1,a=b\r\n");
    }
}
