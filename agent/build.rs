//! Packs the agent's relative relocations: 0.7 MB less to read, and to keep in the memory of each node.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The loader must know them (glibc 2.36, of 2022; a static binary brings its own). A linker that does not
    // know the option ignores it.
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
