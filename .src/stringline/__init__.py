"""Stringline: robotics policies with 3D-position-encoded vision.

The names below are the public API: what programs import and what YAML files and checkpoints name as
`_target_`. They are imported on first use (PEP 562), so `import stringline` loads no library. All
other modules are internal and may move.
"""

import warnings
from importlib import import_module

# dm_control looks for a screen when it is imported; this package renders without one, so its
# warning has no meaning here.
warnings.filterwarnings("ignore", message=r".*The DISPLAY environment variable is missing")

PUBLIC: dict[str, dict[str, tuple[str, ...]]] = {
    "Data and embodiments": {
        "datasets.contract.contract": ("Camera", "Contract"),
        "datasets.embodiments.aloha": ("ALOHA",),
        "datasets.embodiments.embodiment": (
            "CameraMount",
            "Chain",
            "Embodiment",
            "JointSpec",
            "Link",
            "Vector",
        ),
        "datasets.embodiments.fingers": ("FingerTravel",),
        "datasets.embodiments.iiwa14": ("IIWA14", "IIWA14_BIMANUAL"),
        "datasets.embodiments.inverse_kinematics": ("InverseKinematics",),
        "datasets.embodiments.mjcf_parts": (
            "DRAWN",
            "PAD_CONTACT",
            "add_camera",
            "couple_fingers",
            "finger_bits",
        ),
        "datasets.embodiments.transforms": ("Matrix", "pose", "rotation_about"),
        "datasets.loading.windows": ("Windows",),
        "datasets.store.episode": ("EpisodeAttributes",),
        "datasets.store.store": ("EpisodeStore",),
    },
    "Labelled images": {
        "datasets.images.boxes": ("Box3d",),
        "datasets.images.cifar": ("CifarImages",),
        "datasets.images.clip_art": ("ClipArtImages",),
        "datasets.images.coco": ("CocoImages",),
        "datasets.images.coco_writer": ("write_coco",),
        "datasets.images.emoji": ("EmojiImages",),
        "datasets.images.image_folder": ("ImageFolder",),
        "datasets.images.image_store": ("ImageStore", "ImageWriter"),
        "datasets.images.labelled_image": ("LabelledClip", "LabelledImage", "LabelledObject"),
        "datasets.images.omissions": ("Omissions",),
        "datasets.images.omni3d": ("Omni3dImages",),
        "datasets.images.omni3d_writer": ("write_omni3d",),
        "datasets.images.reading": ("ItemReference",),
        "datasets.images.rgbd_folder": ("RgbdImages",),
        "datasets.images.ucf101": ("Ucf101Clips",),
    },
    "Augmentation": {
        "datasets.augmentation.augment": ("Augmentation",),
        "datasets.augmentation.colour_dropout": ("ColourDropout",),
        "datasets.augmentation.colour_sensor_augmentation": ("ColourSensor",),
        "datasets.augmentation.crop_augmentation": ("CropAndResize",),
        "datasets.augmentation.depth_augmentation": ("StereoDepth",),
        "datasets.augmentation.light_augmentation": ("LightAugmentation",),
        "datasets.augmentation.texture_augmentation": ("TextureOverlay",),
    },
    "Foreign formats": {
        "datasets.formats.act_hdf5": ("ActHdf5Reader",),
        "datasets.formats.act_hdf5_writer": ("ActHdf5Writer",),
        "datasets.formats.vector_layout": ("AlohaLayout", "DescribedLayout", "NamedLayout"),
        "datasets.formats.diffusion_policy": ("DiffusionPolicyReader", "DiffusionPolicyWriter"),
        "datasets.formats.lerobot": ("LeRobotReader",),
        "datasets.formats.lerobot_writer": ("LeRobotWriter",),
        "datasets.formats.libero": ("LiberoReader",),
        "datasets.formats.mcap": ("McapReader",),
        "datasets.formats.rlds": ("RldsReader",),
        "datasets.formats.robomimic": ("RobomimicReader",),
        "datasets.formats.umi": ("UmiReader",),
    },
    "Position encodings": {
        "encoders.positions.absolute": ("LearnedEncoding", "SinusoidalEncoding"),
        "encoders.positions.bases": (
            "ButterflyGivens",
            "CayleyBasis",
            "ExponentialBasis",
            "FourierBasis",
            "GivensBasis",
            "HouseholderBasis",
        ),
        "encoders.positions.block_frequencies": (
            "CirculantFrequencies",
            "LinearlyDependentFrequencies",
        ),
        "encoders.positions.comrope": ("ComRopeAp", "ComRopeLd"),
        "encoders.positions.encoding": ("PositionEncoding",),
        "encoders.positions.frequencies": ("AxialFrequencies", "MixedFrequencies"),
        "encoders.positions.lie": ("LieRE",),
        "encoders.positions.presets": (
            "CayleyString",
            "CirculantString",
            "LiereCommute",
            "Rope",
            "RopeInLearnedBasis",
            "RopeMixed",
            "VisionLlamaRope",
        ),
        "encoders.positions.rotary": ("NoEncoding", "RotaryEncoding"),
        "encoders.positions.still_planes": ("StillPlanes",),
        "encoders.positions.tensor_product": ("TensorProductString",),
    },
    "Coordinates and vision": {
        "encoders.coordinates.canonical": ("CylindricalPlaces", "SphericalPlaces"),
        "encoders.coordinates.coordinates": ("GridPlaces", "MetricPlaces", "PatchDepthPlaces"),
        "encoders.coordinates.frames": ("Frames",),
        "encoders.coordinates.geometry": ("View",),
        "encoders.coordinates.ray_places": ("RayPlaces",),
        "encoders.pretrained.backbone": ("PretrainedImages",),
        "encoders.pretrained.monocular_depth": ("MonocularDepth",),
        "encoders.pretrained.resnet": ("ResNet",),
        "encoders.pretrained.vision_transformer": ("PretrainedVisionTransformer",),
        "encoders.vision.attention": ("PositionalAttention",),
        "encoders.vision.depth_inputs": (
            "ColourOnly",
            "DepthChannel",
            "NormalsOnly",
            "SurfaceNormals",
        ),
        "encoders.vision.linear_attention": ("LinearAttention",),
        "encoders.vision.patches": ("ConvolutionalStem", "PatchProjection"),
        "encoders.vision.rgbd": ("RgbdTokens",),
    },
    "Perception": {
        "encoders.perception.classifier": ("Classifier",),
        "encoders.perception.detector2d": ("Detector2d",),
        "encoders.perception.detector3d": ("Detector3d",),
        "encoders.perception.image_encoder": ("ImageEncoder",),
        "encoders.perception.perception_checkpoint": ("load_perception",),
        "encoders.perception.pretrained_text": ("PretrainedTextTower",),
        "encoders.perception.studies": (
            "CoordinateOffset",
            "FrameOrder",
            "PatchShuffling",
            "ResolutionTransfer",
        ),
        "encoders.perception.text_tower": ("TextTower",),
        "encoders.perception.two_towers": ("TwoTowers",),
    },
    "Training": {
        "encoders.training.loggers": ("TensorBoard", "WeightsAndBiases"),
        "encoders.training.trainer": ("Trainer",),
    },
    "Policies": {
        "policies.action_spaces.gripper_poses": ("GripperPoses",),
        "policies.action_spaces.joints": ("RelativeJoints",),
        "policies.action_spaces.open_close": ("OpenClose",),
        "policies.algorithms.act": ("ActPolicy",),
        "policies.algorithms.chunk_policy": ("ChunkPolicy", "masked_mean"),
        "policies.algorithms.diffusion": ("DiffusionPolicy",),
        "policies.algorithms.energy": ("EnergyPolicy",),
        "policies.algorithms.flow": ("FlowPolicy",),
        "policies.algorithms.keypose_policy": ("KeyposePolicy",),
        "policies.algorithms.learned_policy": ("LearnedPolicy",),
        "policies.algorithms.policy_settings": ("ActionPlaces", "PolicySettings"),
        "policies.algorithms.posture": ("Posture",),
        "policies.checkpoints.load": ("load_policy", "open_policy"),
        "policies.chunks.chunk": ("ActionChunk", "Policy", "Session"),
        "policies.networks.denoiser": ("TransformerDenoiser",),
        "policies.networks.unet": ("UnetDenoiser",),
        "policies.observation.history": ("ObservationHistory",),
        "policies.observation.image_encoders": (
            "FeatureMapEncoder",
            "KeypointEncoder",
            "PlainVisionEncoder",
        ),
        "policies.observation.instruction": ("TaskEmbedding", "TextEmbedding"),
        "policies.observation.interfaces": ("ConditioningTokens",),
        "policies.observation.observation_settings": ("EncoderSettings",),
        "policies.observation.normaliser": (
            "MeanStdNormaliser",
            "MinMaxNormaliser",
            "QuantileNormaliser",
        ),
        "policies.observation.observation_encoder": ("ObservationEncoder",),
        "policies.observation.point_encoder": ("PointEncoder",),
        "policies.remote.access": ("ServerAccess",),
        "policies.remote.client": ("RemotePolicy",),
        "policies.remote.openpi": ("OpenpiPolicy",),
        "policies.remote.server": ("serve",),
    },
    "Simulation": {
        "sim.collection.demonstration": ("record_episode",),
        "sim.environment.environment": ("TaskEnvironment",),
        "sim.evaluation.runner": ("Evaluation",),
        "sim.experts.expert_registry": ("make_expert",),
        "sim.experts.grasps": ("Grasp", "both_ways", "gripper_pose"),
        "sim.experts.scripted": ("ScriptedExpert",),
        "sim.experts.skills": ("Skills",),
        "sim.props.graspable": ("Graspable",),
        "sim.props.insertion_parts": ("Block",),
        "sim.props.mesh_folder": ("MeshFolder",),
        "sim.props.prop": ("FLAT_CONTACT", "Prop"),
        "sim.robots.start_range": ("StartRange",),
        "sim.robots.workcells": ("Workcell",),
        "sim.rollout.cluster": ("LocalCluster",),
        "sim.rollout.ray_cluster": ("RayCluster",),
        "sim.rollout.slurm_cluster": ("SlurmCluster",),
        "sim.tasks.goal_task": ("GoalTask",),
        "sim.tasks.kuka_tasks": ("KukaPick", "KukaPlace"),
        "sim.tasks.success": ("ContactState",),
        "sim.tasks.tabletop": ("TabletopTask",),
        "sim.worlds.world_registry": ("open_world",),
    },
    "Robots": {
        "real_robot.driver_interface.driver": ("ArmDriver", "ArmState"),
        "real_robot.robots.arm_backend": ("ArmBackend",),
        "real_robot.safety.filter": ("SafetyFilter",),
        "real_robot.safety.limits": ("SafetyLimits",),
    },
}
"""The public names by subject and by the module that defines them."""

HOME = {
    name: f"stringline.{module}"
    for subject in PUBLIC.values()
    for module, names in subject.items()
    for name in names
}
"""The module of each public name."""

__all__ = sorted(HOME)  # noqa: PLE0605  The list is computed, so that each name is written once.


def __getattr__(name: str) -> object:
    """Imports a public name on its first use.

    Raises:
        AttributeError: The name is not public.
        ImportError: The name needs a package that is not installed.
    """
    if name not in HOME:
        raise AttributeError(
            f"module 'stringline' has no public name {name!r}; docs/api.md lists them"
        )
    try:
        module = import_module(HOME[name])
    except ModuleNotFoundError as error:
        # Imported here, so that `import stringline` loads nothing.
        from stringline.datasets.command.missing_package import missing_package

        if (missing := missing_package(error)) is None:
            raise
        raise ModuleNotFoundError(f"stringline.{name} needs {missing}", name=error.name) from error
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names beside the module's own."""
    return sorted({*globals(), *__all__})
