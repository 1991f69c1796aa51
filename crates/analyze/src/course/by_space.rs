//! Live bytes of the main kind by process, device and resource.

use floodmark_event::Kind;

use crate::change::{Block, Ending, Space};
use crate::course::{CourseFold, Courses, GroupCourse, signed};
use crate::fold::{End, Fold};
use crate::level::Level;

/// Live bytes by process, device and resource over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceCourses {
    /// Kinds that are counted.
    pub kinds: Vec<Kind>,
    /// The courses.
    pub courses: Courses<Space>,
}

/// Folds events into [`SpaceCourses`].
#[derive(Clone, Debug)]
pub struct SpaceCourseFold {
    limit: usize,
    tallies: [Option<Box<CourseFold<u32>>>; Kind::ALL.len()],
}

impl SpaceCourseFold {
    /// Starts; at most `limit` instants are kept.
    pub fn new(limit: usize) -> Self {
        Self { limit, tallies: Default::default() }
    }

    fn change(&mut self, block: &Block, time_ns: i64, by: i64) {
        let limit = self.limit;
        let fold =
            self.tallies[usize::from(block.tally)].get_or_insert_with(|| Box::new(CourseFold::new(limit)));
        fold.change(&block.space, time_ns, by);
    }
}

impl Fold for SpaceCourseFold {
    type Output = SpaceCourses;

    fn carried(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, signed(block.bytes));
    }

    fn alloc(&mut self, block: &Block, _level: &Level) {
        self.change(block, block.time_ns, signed(block.bytes));
    }

    fn free(&mut self, block: &Block, ending: &Ending, _level: &Level) {
        self.change(block, ending.time_ns, -signed(block.bytes));
    }

    fn replaced(&mut self, block: &Block, time_ns: i64, _level: &Level) {
        self.change(block, time_ns, -signed(block.bytes));
    }

    fn finish(&self, end: &End<'_>) -> SpaceCourses {
        let tallies = end.live.tallies();
        let fold = self.tallies[usize::from(tallies.main())].as_ref();
        let courses = fold.map_or_else(|| CourseFold::new(self.limit).finish(), |fold| fold.finish());
        let Courses { groups, moments, interval_ns, peak, end_ns } = courses;
        let named = |GroupCourse { group, points, interval_ns, peak }| {
            let group = end.live.space(group);
            GroupCourse { group, points, interval_ns, peak }
        };
        let groups = groups.into_iter().map(named).collect();
        let end_ns = end.live.end_ns().or(end_ns);
        let courses = Courses { groups, moments, interval_ns, peak, end_ns };
        SpaceCourses { kinds: tallies.main_kinds(), courses }
    }
}
