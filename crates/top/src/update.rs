//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::picture::Picture;
use super::state::{Pane, State, When, Zoom};

/// What the loop is to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Draw again.
    Draw,
    /// Nothing changed.
    Wait,
    /// Leave.
    Quit,
    /// Stop, as Ctrl-Z does.
    Suspend,
}

/// Columns that a page of the timeline has at least.
const FAR: i64 = 10;

/// Does what a key says.
pub(crate) fn key(state: &mut State, picture: &Picture, key: KeyEvent) -> Then {
    if key.kind == KeyEventKind::Release {
        return Then::Wait;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Then::Quit,
            KeyCode::Char('z') => Then::Suspend,
            KeyCode::Char('l') => Then::Draw,
            _ => Then::Wait,
        };
    }
    if state.has_help {
        state.has_help = false;
        return if key.code == KeyCode::Char('q') { Then::Quit } else { Then::Draw };
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Then::Quit,
        KeyCode::Char('?') => state.has_help = true,
        KeyCode::Char('p' | ' ') => state.is_paused = !state.is_paused,
        KeyCode::Char('h') => state.when = if state.when == When::Peak { When::Now } else { When::Peak },
        KeyCode::Char('s') if state.focus == Pane::Holders => state.holder_sort = state.holder_sort.next(),
        KeyCode::Char('s') => state.process_sort = state.process_sort.next(),
        KeyCode::Char('+' | '=') => state.zoom(Zoom::In, picture),
        KeyCode::Char('-' | '_') => state.zoom(Zoom::Out, picture),
        KeyCode::Char('0') => state.look_at_all(),
        KeyCode::Tab => state.move_focus(1, picture),
        KeyCode::BackTab => state.move_focus(-1, picture),
        _ if state.focus == Pane::Timeline => return timeline_key(state, picture, key),
        _ => return list_key(state, picture, key),
    }
    Then::Draw
}

fn timeline_key(state: &mut State, picture: &Picture, key: KeyEvent) -> Then {
    let far = if key.modifiers.contains(KeyModifiers::SHIFT) { FAR } else { 1 };
    let page = i64::from(state.columns / 2).max(FAR);
    match key.code {
        KeyCode::Left => state.move_cursor(-far, picture),
        KeyCode::Right => state.move_cursor(far, picture),
        KeyCode::PageUp => state.move_cursor(-page, picture),
        KeyCode::PageDown => state.move_cursor(page, picture),
        KeyCode::Home => state.move_cursor(i64::MIN / 2, picture),
        KeyCode::End => state.look_at_all(),
        KeyCode::Up => state.zoom(Zoom::In, picture),
        KeyCode::Down => state.zoom(Zoom::Out, picture),
        _ => return Then::Wait,
    }
    Then::Draw
}

fn list_key(state: &mut State, picture: &Picture, key: KeyEvent) -> Then {
    let page = isize::from(state.page.max(1) as i16);
    match key.code {
        KeyCode::Left => state.move_focus(-1, picture),
        KeyCode::Right => state.move_focus(1, picture),
        KeyCode::Up | KeyCode::Char('k') => state.scroll(-1, picture),
        KeyCode::Down | KeyCode::Char('j') => state.scroll(1, picture),
        KeyCode::PageUp => state.scroll(-page, picture),
        KeyCode::PageDown => state.scroll(page, picture),
        KeyCode::Home => state.scroll(isize::MIN / 2, picture),
        KeyCode::End => state.scroll(isize::MAX / 2, picture),
        _ => return Then::Wait,
    }
    Then::Draw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Line;

    fn picture() -> Picture {
        Picture {
            span: Some((0, 1_000_000)),
            lines: vec![Line::default()],
            output: (0..100).map(|number| number.to_string()).collect(),
            ..Picture::default()
        }
    }

    fn at_width(columns: u16) -> State {
        let mut state = State::default();
        state.columns = columns;
        state
    }

    fn press(state: &mut State, codes: &[KeyCode]) -> Then {
        let picture = picture();
        codes
            .iter()
            .fold(Then::Wait, |_, code| key(state, &picture, KeyEvent::new(*code, KeyModifiers::NONE)))
    }

    #[test]
    fn zooming_in_and_out_comes_back_to_all_of_it() {
        let mut state = at_width(100);
        press(&mut state, &[KeyCode::Char('+'), KeyCode::Char('+')]);
        assert_eq!(state.window, Some((750_000, 1_000_000)), "without a cursor the end stays in sight");
        press(&mut state, &[KeyCode::Char('-'), KeyCode::Char('-')]);
        assert_eq!(state.window, None);
    }

    #[test]
    fn the_window_goes_along_with_the_cursor_and_never_leaves_the_time_there_is() {
        let mut state = at_width(100);
        press(&mut state, &[KeyCode::Char('+')]);
        press(&mut state, &[KeyCode::Left; 150]);
        assert_eq!(state.cursor_ns, Some(250_000));
        assert_eq!(state.window, Some((250_000, 750_000)));
        press(&mut state, &vec![KeyCode::Left; 1000]);
        assert_eq!((state.cursor_ns, state.window), (Some(0), Some((0, 500_000))));
        press(&mut state, &vec![KeyCode::Right; 5000]);
        assert_eq!((state.cursor_ns, state.window), (Some(1_000_000), Some((500_000, 1_000_000))));
        press(&mut state, &[KeyCode::End]);
        assert_eq!((state.cursor_ns, state.window), (None, None));
    }

    #[test]
    fn the_focus_goes_around_the_panes_there_are_and_lists_end() {
        let mut state = State::default();
        state.page = 10;
        press(&mut state, &[KeyCode::Tab]);
        assert_eq!((state.focus, state.list), (Pane::Output, Some(Pane::Output)));
        press(&mut state, &[KeyCode::PageUp; 30]);
        assert_eq!(state.scrolled(Pane::Output), 99);
        press(&mut state, &vec![KeyCode::Down; 300]);
        assert_eq!(state.scrolled(Pane::Output), 0);
        press(&mut state, &[KeyCode::Tab]);
        assert_eq!(state.focus, Pane::Timeline);
    }

    #[test]
    fn any_key_closes_the_help_and_three_keys_leave() {
        let mut state = State::default();
        assert_eq!(press(&mut state, &[KeyCode::Char('?')]), Then::Draw);
        assert_eq!((press(&mut state, &[KeyCode::Esc]), state.has_help), (Then::Draw, false));
        assert_eq!(press(&mut state, &[KeyCode::Esc]), Then::Quit);
        assert_eq!(press(&mut state, &[KeyCode::Char('q')]), Then::Quit);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(key(&mut state, &picture(), interrupt), Then::Quit);
    }
}
