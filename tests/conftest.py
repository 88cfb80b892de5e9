"""What all tests share."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Many tiny matrices: threads that wait for each other cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
