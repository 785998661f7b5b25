//! A guest in Rust: it reads numbers, one in each line, and prints how they are spread.
//!
//!     rustc --target wasm32-wasip1 -O quantiles.rs        # rustup: `rustup target add wasm32-wasip1`
//!
//! Debian 12 calls the target wasm32-wasi (packages rustc, libstd-rust-dev-wasm32, lld):
//!
//!     rustc --target wasm32-wasi -O -C linker=wasm-ld quantiles.rs
//!
//! quantiles [-o FILE] [PATH...]
//!
//! Without a path it reads the standard input. The exit code is 1 if a line is no number or a file cannot be read.
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

fn read(from: impl BufRead, name: &str, all: &mut Vec<f64>) -> Result<(), Box<dyn Error>> {
    for (at, line) in from.lines().enumerate() {
        let line = line?;
        match line.trim() {
            "" => {}
            text => all.push(text.parse().map_err(|_| format!("{}:{}: {:?} is no number", name, at + 1, text))?),
        }
    }
    Ok(())
}

/// The smallest value that is not below the fraction `p` of all, which are sorted.
fn quantile(all: &[f64], p: f64) -> f64 {
    all[((p * all.len() as f64).ceil() as usize).clamp(1, all.len()) - 1]
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let mut out: Box<dyn Write> = Box::new(io::stdout());
    if args.next_if_eq("-o").is_some() {
        let name = args.next().ok_or("-o needs a file")?;
        out = Box::new(File::create(&name).map_err(|e| format!("{}: {}", name, e))?);
    }
    let mut all = Vec::new();
    if args.peek().is_none() {
        read(io::stdin().lock(), "stdin", &mut all)?;
    }
    for name in args {
        let file = File::open(&name).map_err(|e| format!("{}: {}", name, e))?;
        read(BufReader::new(file), &name, &mut all)?;
    }
    if all.is_empty() {
        return Err("there are no numbers".into());
    }
    all.sort_by(|a, b| a.total_cmp(b));
    writeln!(out, "count {}", all.len())?;
    writeln!(out, "mean {:.3}", all.iter().sum::<f64>() / all.len() as f64)?;
    for p in [0.5, 0.9, 0.99] {
        writeln!(out, "p{} {}", p * 100.0, quantile(&all, p))?;
    }
    Ok(())
}

fn main() {
    if let Err(err) = run() {
        eprintln!("quantiles: {}", err);
        std::process::exit(1);
    }
}
