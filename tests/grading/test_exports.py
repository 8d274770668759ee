"""Grades as other systems take them."""

import csv
import io
import json
from datetime import datetime
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions_at_work import EXERCISE, NAME, TOTAL, all_but, graded, not_judged

from course_lib.errors import ConfigError, FolderError
from course_lib.grading.exports import formats
from course_lib.grading.gradebook import Gradebook
from course_lib.grading.tables import as_csv, safe

CANVAS = f"""\
Student,ID,SIS User ID,SIS Login ID,Section,From one GPU to many (99),Essay (7),Current Score
    Points Possible,,,,,{TOTAL},5,(read only)
"Lovelace, Ada",4242,s1,ada,A,3,5,80
"Hopper, Grace",4243,s2,GRACE@navy.mil,A,,4,70
"=cmd|' /C calc'!A0",4244,s3,eve,A,,4,70
"Nobody, Bob",4245,s4,bob,A,2,1,10
"""
MOODLE = f"""\
Identifier,Full name,Email address,Status,Grade,Maximum Grade,Feedback comments
Participant 77,Ada Lovelace,Ada@x.org,Submitted,,{TOTAL}.00,
Participant 78,Grace Hopper,grace@navy.mil,Submitted,-,{TOTAL}.00,
"""


def rows(content):
    return list(csv.reader(io.StringIO(content.decode())))


@pytest.fixture
def book():
    return Gradebook([graded("ada"), graded("grace@navy.mil", ("4.4",)), graded("eve", ("4.1", "4.2")), graded("who")])


@pytest.fixture
def roster(tmp_path):
    def write(text):
        path = tmp_path / "roster.csv"
        path.write_text(text)
        return path

    return write


def test_canvas_gets_its_own_columns_back_with_our_points_in_them(book, roster):
    exported = formats.export("canvas", book, roster(CANVAS))
    head, possible, *students = rows(exported.files["canvas.csv"])
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "From one GPU to many (99)"]
    assert possible[0].strip() == "Points Possible"
    assert possible[-1] == TOTAL
    expected = {"4242": TOTAL, "4243": all_but("4.4"), "4244": all_but("4.1", "4.2")}
    assert {row[1]: row[-1] for row in students} == expected
    assert students[1][0] == "'=cmd|' /C calc'!A0"
    assert any("who" in remark for remark in exported.remarks)


def test_canvas_makes_an_assignment_that_is_not_there(book, roster):
    exported = formats.export("canvas", book, roster(CANVAS.replace("From one GPU to many (99)", "Other (99)")))
    head, possible, *_ = rows(exported.files["canvas.csv"])
    assert (head[-1], possible[-1]) == (EXERCISE.title, TOTAL)
    assert "new assignment" in exported.remarks[0]


def test_what_could_not_be_judged_leaves_canvas_as_it_is(roster):
    exported = formats.export("canvas", Gradebook([not_judged("ada")]), roster(CANVAS))
    assert rows(exported.files["canvas.csv"])[2][-1] == "3"


def test_moodle_gets_its_own_file_back(book, roster):
    exported = formats.export("moodle", book, roster(MOODLE.replace("Ada@", "ada@")))
    before, after = rows(MOODLE.replace("Ada@", "ada@").encode()), rows(exported.files["moodle.csv"])
    assert after[0] == before[0]
    assert after[2][4] == all_but("4.4")
    assert [row[:4] + row[5:] for row in after] == [row[:4] + row[5:] for row in before]


@pytest.mark.parametrize("student", ["Ada@x.org", "ada@X.ORG", "Ada Lovelace_77_assignsubmission_file"])
def test_a_student_is_found_in_moodle(roster, student):
    exported = formats.export("moodle", Gradebook([graded(student)]), roster(MOODLE))
    assert rows(exported.files["moodle.csv"])[1][4] == TOTAL
    assert exported.remarks == ()


@pytest.mark.parametrize("last", ["Last name", "Surname"])
@pytest.mark.parametrize("student", ["Zoë Łódź", "zoe\u0308 Łódź", "Zoë Łódź_77_assignsubmission_file"])
def test_moodle_knows_a_full_name_that_is_in_two_columns(roster, last, student):
    gradebook = (
        f"First name,{last},Email address,Assignment: {EXERCISE.title} (Real)\nAda,Łódź,a@x.org,-\nZoë,Łódź,z@x.org,-\n"
    )
    exported = formats.export("moodle", Gradebook([graded(student)]), roster(gradebook))
    assert [row[3] for row in rows(exported.files["moodle.csv"])[1:]] == ["-", TOTAL]
    assert exported.remarks == ()


def test_who_is_there_twice_gets_no_grade(roster):
    twice = MOODLE + MOODLE.splitlines()[1] + "\n"
    exported = formats.export("moodle", Gradebook([graded("Ada@x.org")]), roster(twice))
    assert [row[4] for row in rows(exported.files["moodle.csv"])] == ["Grade", "", "-", ""]
    assert "more than once" in exported.remarks[0]


def test_points_that_are_counted_otherwise_are_told(book, roster):
    exported = formats.export("moodle", book, roster(MOODLE.replace(f"{TOTAL}.00", "100")))
    assert f"100 points at most there, and {TOTAL} here" in exported.remarks[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("canvas", "a,b\n1,2\n", "who is who"),
        ("canvas", "Student,ID\nAda,1\n", "Points Possible"),
        ("moodle", "Email address,Essay\na@b,1\n", "no column for"),
        ("moodle", "", "no rows"),
    ],
)
def test_a_file_that_is_no_such_export_is_refused(book, roster, name, text, message):
    with pytest.raises(FolderError, match=message):
        formats.export(name, book, roster(text))


def test_a_roster_that_a_spreadsheet_saved_in_another_encoding_says_what_to_do(tmp_path):
    path = tmp_path / "roster.csv"
    path.write_bytes("Email address,Grade\nZoë,1\n".encode("cp1252"))
    with pytest.raises(FolderError, match=r"roster\.csv is no CSV file in UTF-8\. .*save it .* as CSV in UTF-8\.$"):
        formats.check("moodle", path)


def test_what_cannot_be_exported_is_said_before_grading(tmp_path):
    with pytest.raises(ConfigError, match="--roster"):
        formats.check("canvas", None)
    with pytest.raises(ConfigError, match="needs none"):
        formats.check("lti", tmp_path)
    with pytest.raises(ConfigError, match="one of nbgrader, canvas"):
        formats.check("excel", None)


def test_nbgrader_has_one_row_for_each_student_and_assignment(book):
    content = formats.export("nbgrader", book, None).files["nbgrader.csv"]
    table = list(csv.DictReader(io.StringIO(content.decode())))
    assert {(row["assignment"], row["student_id"]): float(row["score"]) for row in table} == {
        (NAME, student): book.points(student) for student in book.students
    }
    assert all(row["max_score"] == TOTAL and datetime.fromisoformat(row["timestamp"]) for row in table)


def test_gradescope_gets_a_result_of_each_submission_that_was_judged():
    book = Gradebook([graded("ada", ("4.4",)), not_judged("bob")])
    exported = formats.export("gradescope", book, None)
    (path,) = exported.files
    assert path == f"gradescope/ada/{NAME}/results.json"
    results = json.loads(exported.files[path])
    assert results["score"] == sum(test["score"] for test in results["tests"]) == float(all_but("4.4"))
    assert sum(test["max_score"] for test in results["tests"]) == EXERCISE.points
    assert {test["status"] for test in results["tests"] if test["output"]} == {"failed"}
    assert "bob" in exported.remarks[0]


def test_lti_scores_are_complete_and_what_was_not_judged_has_none():
    book = Gradebook([graded("ada"), not_judged("bob")])
    (item,) = json.loads(formats.export("lti", book, None).files["lti.json"])
    ada, bob = item["scores"]
    assert (ada["scoreGiven"], ada["scoreMaximum"], ada["gradingProgress"]) == (
        EXERCISE.points,
        EXERCISE.points,
        "FullyGraded",
    )
    assert datetime.fromisoformat(ada["timestamp"]).tzinfo is not None
    assert "scoreGiven" not in bob
    assert bob["gradingProgress"] == "Failed"


def test_junit_tells_failures_from_errors_and_takes_any_text():
    book = Gradebook([graded("a\x1b<b>", ("4.2",), seen="\x00 <&>]]>\ud800"), not_judged("bob")])
    root = ElementTree.fromstring(formats.export("junit", book, None).files["junit.xml"])
    ada, bob = root
    failed = sum(len(part.checks) for part in EXERCISE.parts if part.name == "4.2")
    assert (ada.get("failures"), ada.get("errors")) == (str(failed), "0")
    assert (bob.get("failures"), bob.get("errors")) == ("0", bob.get("tests"))
    assert "<&>]]>" in root.find(".//failure").get("message")


@given(st.text())
def test_no_text_is_a_formula_and_all_text_comes_back(text):
    content = as_csv([[text, 1.0, None]])
    ((read, number, nothing),) = csv.reader(io.StringIO(content.decode(), newline=""))
    assert (number, nothing) == ("1", "")
    assert read.lstrip(" ")[:1] not in ("=", "+", "@", "\t", "\r") or read.lstrip("+-").replace(".", "").isdecimal()
    if not any("\ud800" <= sign <= "\udfff" for sign in text):
        assert read in (text, f"'{text}")


@pytest.mark.parametrize("text", ["-", "-1.5", "+3", "", "a=1", "Ada"])
def test_what_is_no_formula_stays_as_it_is(text):
    assert safe(text) == text


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@x", "\t=1", "\r=1", " =1", "-1+1", "＝1"])
def test_a_formula_is_made_text(text):
    assert safe(text) == f"'{text}"


def test_grades_are_empty_where_nothing_was_judged_and_tell_why():
    table = rows(Gradebook([graded("=1+1", ("4.4",)), not_judged("bob")]).csv())
    by_name = {row[0]: dict(zip(table[0], row, strict=True)) for row in table[1:]}
    assert by_name["'=1+1"]["points"] == all_but("4.4")
    assert by_name["'=1+1"]["4.4"] == "0"
    assert by_name["bob"][NAME] == ""
    assert by_name["bob"]["4.4"] == ""
    assert by_name["bob"]["points"] == ""
    assert "no fault of the student's" in by_name["bob"]["notes"]
