//! `make bench-growth`: how figures grow with the number of nodes.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use brupop_testbed::growth::{self, Point};
use clap::Parser;

/// Prints a table of what `brupop-bench-scale --point` has written, and draws it.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-bench-growth", version)]
struct Arguments {
    /// Files of `brupop-bench-scale --point`, each with another number of nodes
    #[arg(required = true)]
    points: Vec<PathBuf>,
    /// Draw it into this file, as SVG, if there are several
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let points: Vec<Point> = arguments.points.iter().map(|from| Point::read(from)).collect::<Result<_>>()?;
    print!("{}", growth::render(&points));
    // One number of nodes makes no curve.
    if let Some(to) = arguments.svg.as_ref().filter(|_| points.len() > 1) {
        std::fs::write(to, growth::draw(&points)?).with_context(|| to.display().to_string())?;
    }
    Ok(())
}
