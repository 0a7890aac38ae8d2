"""The parts of the planner's benchmark."""
