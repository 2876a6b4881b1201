//! Host programs: commands that run on the worker's machine.

use gpufleet_schema::{Dtype, HostProgram, Program, host_program::UPLOAD};

use super::Job;
use crate::{Array, ArrayFile};

impl Job {
    /// Describes a host program: a command that runs on a worker's machine with a whole device, in one of the environments that the worker
    /// offers, or, with [`Job::host_in_image`], in a container. Its time limit is that of the pool unless [`Job::time_limit`] sets one.
    ///
    /// It is attempted once, because a program that has begun may have had effects. [`Job::attempts_max`] allows more.
    ///
    /// ```
    /// use gpufleet::Job;
    ///
    /// let job = Job::host(["python", "train.py"], "torch").variable("SEED", "7").download("out/**");
    /// assert!(job.build().is_ok());
    /// ```
    pub fn host(command: impl IntoIterator<Item = impl Into<String>>, environment: impl Into<String>) -> Self {
        let mut job = Self::of(Program::Host(HostProgram {
            command: command.into_iter().map(Into::into).collect(),
            environment: Some(environment.into()),
            image: None,
            variables: std::collections::BTreeMap::new(),
            download: Vec::new(),
            network: false,
        }));
        job.task.limits.attempts_max = Some(1);
        job
    }

    /// Describes a host program that runs in a container, in one of the images that the worker offers. Otherwise it is as [`Job::host`].
    ///
    /// ```
    /// use gpufleet::Job;
    ///
    /// let job = Job::host_in_image(["python", "train.py"], "pytorch:2.9").download("out/**");
    /// assert!(job.build().is_ok());
    /// ```
    pub fn host_in_image(command: impl IntoIterator<Item = impl Into<String>>, image: impl Into<String>) -> Self {
        let image = image.into();
        Self::host(command, "").host_program("an image", |program| {
            (program.environment, program.image) = (None, Some(image));
        })
    }

    /// Sets an environment variable of a host program. A second value for a name replaces the first.
    #[must_use]
    pub fn variable(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.host_program("an environment variable", |program| drop(program.variables.insert(name, value)))
    }

    /// Adds a glob of the files that a host program brings back, relative to its working directory, such as `out/**`. They are the job's
    /// output [`FILES`](gpufleet_schema::host_program::FILES), a tar archive, which [`archive::unpack`](crate::archive::unpack) reads.
    #[must_use]
    pub fn download(self, glob: impl Into<String>) -> Self {
        let glob = glob.into();
        self.host_program("a download", |program| program.download.push(glob))
    }

    /// Sets whether a host program may use the network. By default it may not; pools allow it or not.
    #[must_use]
    pub fn network(self, allowed: bool) -> Self {
        self.host_program("the network", |program| program.network = allowed)
    }

    /// Gives a host program the files of a tar archive, such as that of [`archive::pack`](crate::archive::pack). It finds them in its working
    /// directory.
    #[must_use]
    pub fn upload(self, archive: Vec<u8>) -> Self {
        self.host_program("an upload", |_| ()).input_array(UPLOAD, Array::from_slice(&archive))
    }

    /// As [`Job::upload`], with an archive in a file. A client with a blob store stores it with little memory.
    #[must_use]
    pub fn upload_file(self, archive: ArrayFile) -> Self {
        let job = self.host_program("an upload", |_| ());
        match archive.dtype() {
            Dtype::U8 => job.input_file(UPLOAD, archive),
            _ => job.refused("buffers", "an archive is bytes, so its dtype is u8".to_owned()),
        }
    }

    fn host_program(mut self, what: &str, change: impl FnOnce(&mut HostProgram)) -> Self {
        match &mut self.task.program {
            Program::Host(program) => change(program),
            other => {
                let problem = format!("{what} is for host programs, this program is {}", other.kind());
                self.reject("program", problem);
            }
        }
        self
    }

    fn refused(mut self, field: &str, problem: String) -> Self {
        self.reject(field, problem);
        self
    }
}
