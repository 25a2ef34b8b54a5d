"""Figures as TensorBoard's event files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evotrainer.extras.tracking.figures import Point, Target, TrackerRun, flat
from evotrainer.records.frozen import Frozen


class TensorBoardOptions(Frozen):
    """`[tracking.options.tensorboard]`"""

    dir: str = ""
    """Log folder; default: `tracking/tensorboard` in the run folder."""


class TensorBoard(Target):
    """Event files, one per write, named by the steps they hold: the same write again replaces the same file."""

    def __init__(self, folder: Path, project: str, o: TensorBoardOptions) -> None:
        self.dir = Path(o.dir).expanduser() if o.dir else folder / "tracking" / "tensorboard"

    def write(self, sheet: TrackerRun) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        place = self.dir / sheet.name
        place.mkdir(parents=True, exist_ok=True)
        steps = [p.step for p in sheet.points] or [0]
        name = f"events.out.tfevents.{int(sheet.start):010d}.{steps[0]:08d}-{steps[-1]:08d}.evotrainer"
        part = place / f".{name}.part"
        with open(part, "wb") as file:
            out = RecordWriter(file)
            out.write(Event(wall_time=sheet.start, file_version="brain.Event:2").SerializeToString())
            for p in sheet.points:
                scalars = [Summary.Value(tag=k, simple_value=v) for k, v in p.values.items()]
                out.write(Event(wall_time=p.time, step=p.step, summary=Summary(value=scalars)).SerializeToString())
            end = sheet.points[-1] if sheet.points else Point(0, sheet.start, {})
            config = "\n".join(f"    {k} = {v}" for k, v in flat(sheet.config))
            for tag, text in {**sheet.texts, "config": config}.items():
                out.write(Event(wall_time=end.time, step=end.step, summary=_text(tag, text)).SerializeToString())
            out.flush()
        os.replace(part, place / name)

    def where(self) -> str:
        return f"tensorboard --logdir {self.dir}"


def _text(tag: str, text: str) -> Any:
    """A text that TensorBoard's text tab shows."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    data = SummaryMetadata.PluginData(plugin_name="text", content=TextPluginData(version=0).SerializeToString())
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=data), tensor=tensor)])
