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
    /// Draw it into this file, as SVG
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let points: Vec<Point> = arguments.points.iter().map(|from| Point::read(from)).collect::<Result<_>>()?;
    print!("{}", growth::render(&points));
    if let Some(to) = &arguments.svg {
        std::fs::write(to, growth::draw(&points)?).with_context(|| to.display().to_string())?;
    }
    Ok(())
}
