"""Guards of the product, each with the line that is it, the same line without it, and the test that must then fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Guard:
    """One line that something depends on.

    Attributes:
        row: The requirement of security.md that it keeps.
        file: Where it stands, from the root of the checkout.
        line: Its text without indentation; it occurs once in the file.
        without: What stands there when the guard is gone.
        test: Node id of the test that must fail then.
    """

    row: str
    file: str
    line: str
    without: str
    test: str


def _guard(row: str, file: str, line: str, without: str, *, test: str) -> Guard:
    return Guard(row, file, line, without, test)


_SEALING: Final = "tests/unit/test_vault_sealing.py"
_DAMAGE: Final = "tests/crash/test_damage.py"

GUARDS: Final = (
    _guard(
        "V02", "continuity/vault/place.py", 'return len(part).to_bytes(LENGTH_BYTES, "big") + part', "return part",
        test=f"{_SEALING}::test_places_that_look_alike_when_glued_together_differ",
    ),
    _guard(
        "V05", "continuity/services/columns.py",
        "and row.change_seq == operation.change_seq == standing.change_seq", "and True",
        test="tests/security/test_sealed_rows.py::test_an_older_row_of_the_same_state_put_back_is_found",
    ),
    _guard(
        "V07", "continuity/vault/nonces.py", "if nonce in self._seen:", "if False:",
        test="tests/security/test_key_material.py::test_a_repeating_generator_stops_every_write_of_a_ledger",
    ),
    _guard(
        "V07", "continuity/vault/nonces.py", "if next(self._drawn) > SEALS_PER_KEY_MAX:", "if next(self._drawn) < 0:",
        test="tests/security/test_key_material.py::test_a_key_wears_out_at_half_of_what_is_allowed",
    ),
    _guard(
        "V08", "continuity/vault/envelope.py", "if named_key_id != key_id:", "if False:",
        test=f"{_SEALING}::TestPartitions::test_a_wrapped_key_opens_under_the_master_key_of_its_row_only",
    ),
    _guard(
        "V10", "app/cli/terminal.py", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "del resource",
        test="tests/security/test_key_material.py::test_no_command_that_may_hold_the_key_leaves_its_memory_on_disk",
    ),
    _guard(
        "V18", "continuity/vault/vault.py", "if self.has_shredded(partition_id):", "if False:",
        test=f"{_SEALING}::TestShredding::test_a_shredded_partition_never_opens_again",
    ),
    _guard(
        "X04", "app/pages/spreadsheet.py", 'return f"\'{text}" if _FORMULA.match(text) else text', "return text",
        test="tests/unit/test_pages_activity_parts.py",
    ),
    _guard(
        "X08", "app/application.py", "DEBUG=False,", "",
        test="tests/security/test_replies.py::test_no_variable_turns_debugging_on",
    ),
    _guard(
        "C01", "continuity/services/cursors.py",
        'if not is_ours or not is_spelled or int.from_bytes(plain[8:], "big") < now_us:', "if not is_ours:",
        test="tests/integration/test_services_listing.py::test_a_cursor_is_one_callers_for_one_question_and_a_while",
    ),
    _guard(
        "G07", "app/logs.py", 'return _TOKEN.sub(r"atm_\\1_***", text)', "return text",
        test="tests/web/test_edge_background.py::test_a_credential_in_an_address_is_masked",
    ),
    _guard(
        "P01", "app/instance.py", "if found.st_mode & _OTHERS:", "if False:",
        test="tests/cli/test_init.py::test_an_instance_that_others_can_look_into_is_refused",
    ),
    _guard(
        "T07", "continuity/services/threads_rights.py", "if Right.SEE not in may:", "if False:",
        test="tests/web/test_api_threads_scope.py::test_anothers_thread_and_none_answer_with_the_same_bytes",
    ),
    _guard(
        "F27", "continuity/threads/places.py", "if any(channel not in _ASKING for channel, _ in written):", "if False:",
        test="tests/threads/test_places.py::test_a_task_asks_until_something_that_it_gives_is_stored",
    ),
    _guard(
        "N03", "continuity/transport.py", "if size_bytes > most_bytes:", "if False:",
        test="tests/sdk/test_transport.py::test_a_reply_of_the_largest_size_is_read_and_one_more_byte_is_refused",
    ),
    _guard(
        "F07", "app/databases.py", "if has_vault and _is_empty(store):", "if False:",
        test=f"{_DAMAGE}::test_a_file_that_is_no_ledger_any_more_is_neither_used_nor_made_anew",
    ),
    _guard(
        "F07", "app/databases.py", 'for pragma in ("quick_check(1)", *(f"integrity_check({table})" for table in '
        "_IDENTITIES)):", 'for pragma in ("quick_check(1)",):',
        test=f"{_DAMAGE}::test_an_index_that_does_not_find_a_key_any_more_stops_the_start",
    ),
    _guard(
        "F02", "continuity/store/sqlite.py", '"PRAGMA synchronous=FULL",', '"PRAGMA synchronous=NORMAL",',
        test="tests/crash/test_power_loss.py::test_no_acknowledged_commit_is_lost_wherever_the_power_fails",
    ),
    _guard(
        "F09", "continuity/store/writer.py", "self._turns.hold()", "pass",
        test="tests/crash/test_busy.py::"
        "test_while_the_lock_is_held_for_long_one_thread_waits_and_everybody_else_is_answered",
    ),
    _guard(
        "F20", "continuity/services/clockwatch.py", "return Reading(now_us, self._stepped_us)",
        "self._latest_us = max(self._latest_us, now_us); return Reading(now_us, self._stepped_us)",
        test="tests/integration/test_services_clocks.py::"
        "test_a_clock_that_was_ahead_while_nothing_was_decided_pauses_nothing_when_it_is_right_again",
    ),
)  # fmt: skip
"""The last two columns are about the file as it is: who changes a line here changes it there."""
