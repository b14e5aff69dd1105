//! The control plane's programs one by one: started, killed, started again, looked at.

use anyhow::{Context as _, Result, bail, ensure};

use super::ControlPlane;
use crate::components::{AUDIT_POLICY, Layout};
use crate::sandbox::Signal;

impl ControlPlane {
    /// Kills one of the control plane's programs, and awaits its end. Until [`Self::start_program`] it is gone.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill(&mut self, program: &str) -> Result<()> {
        let position = self.processes.iter().position(|process| process.name() == program);
        let mut process = self.processes.remove(position.with_context(|| format!("{program} does not run"))?);
        process.signal(Signal::KILL)?;
        process.wait().await.map(drop)
    }

    /// Starts a program; one that was killed with the same command line, on the same files.
    ///
    /// # Errors
    /// There is no such program, it runs already, or it cannot be started.
    pub fn start_program(&mut self, program: &str) -> Result<()> {
        ensure!(self.processes.iter().all(|process| process.name() != program), "{program} runs");
        let admin = self.kubeconfig();
        let layout = Layout {
            binaries: &self.binaries,
            dir: self.dir(),
            authority: &self.authority,
            etcd_port: self.etcd_port,
            api_port: self.api_port,
            admin: &admin,
            reach: self.options.reach,
            presents: self.options.presents,
            audit_policy: self.options.audit_policy.unwrap_or(AUDIT_POLICY),
            under_faults: self.options.under_faults,
        };
        let command = match program {
            "etcd" => layout.etcd()?,
            "kube-apiserver" => layout.api_server()?,
            "kube-controller-manager" => layout.controller_manager(),
            "kube-scheduler" => layout.scheduler(),
            "kwok" => layout.kwok(),
            _ => bail!("{program} is no program of the control plane"),
        };
        let process = self.shared.sandbox.spawn(program, command)?;
        self.processes.push(process);
        Ok(())
    }

    /// Names of those programs that have ended by themselves; they are forgotten, so that they can be started again.
    pub fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        self.processes.retain_mut(|process| {
            let runs = process.check().is_ok();
            if !runs {
                ended.push(process.name().to_owned());
            }
            runs
        });
        ended
    }

    /// Where etcd answers.
    pub fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// Whether the API server reaches Services; it does unless told otherwise.
    pub fn reach_services(&self, reached: bool) {
        self.shared.services.reach(reached);
    }
}
