//! `[access_log]`.

use crate::access_log::{AccessLog, DEFAULT_LINES_PER_SECOND, LINES_PER_SECOND, LogFormat, LogTarget};
use crate::mistakes::Mistakes;
use crate::raw;

impl Mistakes {
    pub(super) fn access_log(&mut self, file: &raw::AccessLog) -> Option<AccessLog> {
        let target = self.take(&file.path, LogTarget::parse(file.path.get_ref()));
        let format = match &file.format {
            Some(format) => self.take(format, LogFormat::parse(format.get_ref())),
            None => Some(LogFormat::default()),
        };
        let lines_per_second = self.number_or(
            "lines_per_second",
            &file.lines_per_second,
            LINES_PER_SECOND,
            DEFAULT_LINES_PER_SECOND,
        );
        Some(AccessLog { target: target?, format: format?, lines_per_second })
    }
}
