"""Traces: the known formats, and what a malformed one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_aliquot.gateway.planning.jobs import Job
from jupyter_aliquot.gateway.simulation.cluster import ClusterError, parse_cluster
from jupyter_aliquot.gateway.simulation.traces import TraceError, read_services, read_trace

OWN = "name,gpus,submit,seconds,team\n"


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_our_own_format_has_fractions_and_teams(tmp_path: Path) -> None:
    jobs = read_trace(written(tmp_path, OWN + "a,0.25,0,60,vision\nb,2.5,3.5,10,\n"))
    assert jobs == (Job("a", 250, 0.0, 60.0, "vision"), Job("b", 2500, 3.5, 10.0))


def test_a_trace_of_muri_is_in_milliseconds(tmp_path: Path) -> None:
    columns = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"
    overheads = written(tmp_path, "model_name,gpus_1,gpus_2\nbert,10,12\n", "overheads.csv")
    jobs = read_trace(written(tmp_path, columns + "7,2,4000,100,bert,50\n8,4,0,1,new,1000\n"), overheads)
    assert jobs[0] == Job("7", 2000, 4.0, pytest.approx(100 * 0.05 * 1.015), start_overhead=12.0)
    assert jobs[1].start_overhead == 10.0, "an unknown model"


def test_traces_of_tiresias_and_philly_are_in_seconds(tmp_path: Path) -> None:
    tiresias = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,2,30,9,vgg19,164,30\n"
    assert read_trace(written(tmp_path, tiresias)) == (Job("1", 2000, 30.0, 164.0),)
    philly = "vc,arrival_s,num_gpus,job_type,total_steps,duration_s_on_v100\nx,0.0,1,t,5,\ny,1.5,4,t,5,7.5\n"
    assert read_trace(written(tmp_path, philly)) == (Job("line 3", 4000, 1.5, 7.5, "y"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"trace.csv: The file has no jobs"),
        (OWN, r"trace.csv: The file has no jobs"),
        ("a,b\n1,2\n", r"trace.csv:1: The columns a, b are those of no known trace. Known: aliquot: gpus"),
        (OWN + "a,0,0,60,\n", r"trace.csv:2: gpus is '0', and has to be above 0"),
        (OWN + "a,1,0,60,\nb,1,-3,60,\n", r"trace.csv:3: submit is '-3', and has to be 0 or more"),
        (OWN + "a,one,0,60,\n", r"trace.csv:2: gpus is 'one', which is no number"),
        (OWN + "a,1,0,nan,\n", r"trace.csv:2: seconds is 'nan', which is no finite number"),
        (OWN + "a,1,0,inf,\n", r"no finite number"),
        (OWN + "a,1,0\n", r"trace.csv:2: The line has not as many values as the header has columns"),
        (OWN + "a,1,0,1,t,too,many\n", r"trace.csv:2: The line has not as many values"),
        (OWN + "a,1,0,60,\na,1,0,60,\n", r"trace.csv:3: The job 'a' occurs twice"),
        (OWN + "a,0.0001,0,60,\n", r"trace.csv:2: gpus is '0.0001'.*0.001"),
        ("job_id,num_gpu,submit_time,model_name,duration\n1,1.5,0,m,3\n", r"has to be a whole number of GPUs"),
        ("vc,arrival_s,num_gpus,duration_s_on_v100\nx,0,1,\n", r"No job of the file has a duration"),
    ],
)
def test_a_malformed_trace_is_refused_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    for name, words in (("binary", "no CSV file in UTF-8"), ("absent", "cannot be read: No such file")):
        with pytest.raises(TraceError, match=words):
            read_trace(tmp_path / name)
    with pytest.raises(TraceError, match="column 'duration' is missing"):
        read_services(written(tmp_path, "seconds\n3\n"))
    with pytest.raises(TraceError, match="no past jobs"):
        read_services(written(tmp_path, "duration\n"))
    with pytest.raises(TraceError, match="column 'model_name' is missing"):
        read_trace(written(tmp_path, OWN + "a,1,0,1,\n"), written(tmp_path, "gpus_1\n3\n", "overheads.csv"))


def test_a_cluster_is_nodes_by_devices() -> None:
    assert parse_cluster("2x8, 1x4") == (8, 8, 4)
    for text, words in (
        ("8", "is not NODESxDEVICES"),
        ("0x8", "1 to 10000 nodes"),
        ("9999x8,2x8", "1 to 10000 nodes"),
        ("1x65", "1 to 64"),
        ("-1x8", "is not NODESxDEVICES"),
    ):
        with pytest.raises(ClusterError, match=words):
            parse_cluster(text)
