"""The ridge against scikit-learn's."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import PolynomialFeatures

from sombrl.errors import SombrlError
from sombrl.paper.recordings.ridge import fit_ridge, quadratic


@pytest.mark.parametrize(("rows", "strength"), [(12, 3.0), (200, 0.1)])
def test_as_scikit_learn(rows, strength):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(rows, 4)), random.normal(size=(rows, 2))
    features = PolynomialFeatures(2, include_bias=True)
    np.testing.assert_allclose(quadratic(x), features.fit_transform(x))
    expected = Ridge(strength).fit(features.transform(x)[:, 1:], y)
    new = random.normal(size=(5, 4))
    found = jax.vmap(fit_ridge(x, y, strength))(new.astype(np.float32))
    np.testing.assert_allclose(found, expected.predict(features.transform(new)[:, 1:]), atol=2e-5)


def test_noise_is_that_of_the_data_although_features_are_many():
    """√(RSS/(rows - df)): with 66 features and 100 rows the residuals alone would say about 0.6 of it."""
    random = np.random.default_rng(1)
    x = random.normal(size=(100, 10))
    y = 0.3 * random.normal(size=(100, 40))  # outputs stand for repetitions
    noise = np.asarray(fit_ridge(x, y, 1e-9).noise_std)
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(0.3, rel=0.03)
    features = quadratic(x)
    left = y - features @ np.linalg.lstsq(features, y, rcond=None)[0]
    np.testing.assert_allclose(noise, np.sqrt(np.sum(left**2, axis=0) / (100 - 66)), rtol=1e-4)


def test_no_ridge_at_all_is_refused():
    with pytest.raises(SombrlError, match="positive"):
        fit_ridge(np.zeros((3, 1)), np.zeros((3, 1)), 0.0)
