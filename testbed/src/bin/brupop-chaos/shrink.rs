//! Makes a failing schedule small: faults are left out as long as it still fails.

use anyhow::Result;

use crate::fault::Step;

/// Leaves out halves, then quarters and so on, and keeps what still fails by `fails`; at most `runs` runs.
///
/// # Errors
/// Those of `fails`.
pub(crate) async fn shrink(
    mut steps: Vec<Step>,
    mut runs: usize,
    mut fails: impl AsyncFnMut(&[Step]) -> Result<bool>,
) -> Result<Vec<Step>> {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 && runs > 0 {
        let (mut from, before) = (0, steps.len());
        while from < steps.len() && runs > 0 {
            let to = (from + chunk).min(steps.len());
            let without: Vec<Step> = [&steps[..from], &steps[to..]].concat();
            runs -= 1;
            if fails(&without).await? {
                steps = without;
            } else {
                from = to;
            }
        }
        // One fault at a time may need another round; more at a time become fewer.
        if chunk > 1 {
            chunk = chunk.div_ceil(2).min(steps.len());
        } else if steps.len() == before {
            chunk = 0;
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[tokio::test]
    async fn what_does_not_matter_is_left_out() {
        let steps: Vec<Step> = (0..40).map(|at| Step { at, fault: Fault::Reboots { node: 0 } }).collect();
        let mut runs = 0;
        let two_of_them = async |steps: &[Step]| {
            runs += 1;
            Ok([3, 31].iter().all(|at| steps.iter().any(|step| step.at == *at)))
        };
        let left = shrink(steps.clone(), 100, two_of_them).await.unwrap();
        assert_eq!(left.iter().map(|step| step.at).collect::<Vec<_>>(), [3, 31]);
        assert!(runs < 40, "{runs}");
        let left = shrink(steps, 0, async |_: &[Step]| Ok(true)).await.unwrap();
        assert_eq!(left.len(), 40, "no run, no change");
    }
}
