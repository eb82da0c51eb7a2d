//! Resources of the process: file descriptors, CPU, memory, threads.
//!
//! *Owns* [`Descriptors`] and [`Process`]. *Invariant*: what the system does not tell is `None`. *Never* keeps anything
//! between two looks.

/// The process's file descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Open now; `None` where the system does not tell.
    pub open: Option<u64>,
    /// How many it may open; `None` for no limit.
    pub max: Option<u64>,
}

impl Descriptors {
    /// Counts them. Costs a directory listing of as many entries.
    #[must_use]
    pub(crate) fn now() -> Descriptors {
        // The listing itself holds one open.
        let open = std::fs::read_dir("/proc/self/fd")
            .map(|dir| (dir.count() as u64).saturating_sub(1))
            .ok();
        let max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Descriptors { open, max }
    }
}

/// What the process takes, as the system tells. `None`: it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    /// CPU of all its threads since its start, seconds.
    pub cpu_seconds: Option<f64>,
    /// Its memory that is in use, bytes.
    pub resident_bytes: Option<u64>,
    /// Its addresses that are in use, bytes.
    pub virtual_bytes: Option<u64>,
    /// Its threads.
    pub threads: Option<u64>,
    /// When it began, seconds since 1970.
    pub started_seconds: Option<f64>,
}

impl Process {
    /// Reads a few files of `/proc`.
    #[must_use]
    pub(crate) fn now() -> Process {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let booted = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok());
        Self::of(&stat, booted)
    }

    fn of(stat: &str, booted_seconds: Option<f64>) -> Process {
        // The name of the program, in parentheses, may hold blanks.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Counted from 3 in proc(5).
        let field =
            |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let cpu = field(14).zip(field(15)).map(|(user, system)| (user + system) as f64 / ticks);
        let page = rustix::param::page_size() as u64;
        Self {
            cpu_seconds: cpu,
            resident_bytes: field(24).map(|pages| pages * page),
            virtual_bytes: field(23),
            threads: field(20),
            started_seconds: field(22)
                .zip(booted_seconds)
                .map(|(at, boot)| boot + at as f64 / ticks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_takes_is_read_behind_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 9 0 500 8192 3 184";
        let process = Process::of(stat, Some(1000.0));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, Some(200.0 / ticks));
        assert_eq!((process.threads, process.virtual_bytes), (Some(9), Some(8192)));
        assert_eq!(process.resident_bytes, Some(3 * rustix::param::page_size() as u64));
        assert_eq!(process.started_seconds, Some(1000.0 + 500.0 / ticks));
        assert_eq!(Process::of("", None), Process::default());
        let own = Process::now();
        assert!(own.resident_bytes.unwrap() > 0 && own.started_seconds.unwrap() > 1.6e9);
    }

    #[test]
    fn this_process_has_open_descriptors_within_its_limit() {
        let descriptors = Descriptors::now();
        let open = descriptors.open.unwrap();
        assert!(open >= 3);
        assert!(descriptors.max.is_none_or(|max| open <= max));
    }
}
